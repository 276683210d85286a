"""Networks of the usual shape, decoded without their modules: see `models.lean`.

Their weights are copies, and keys and values lie in memory set aside. Matrices are multiplied in the type that the
policy computes in; what lies between two products, and keys and values, are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from transformers import PreTrainedModel

from coterie.models.attention import grouped, grouped_sums, weighed
from coterie.models.lean import Bases, Network, merged

SHARED, LONG = 2, 8192
"""Rows a prompt, and tokens of all rows' prompts, from which on a prompt's keys and values are kept once, beside those
of each row's own tokens: fewer are read in less time than it takes to put two parts together."""
HEAD = 0.25
"""Share of the prompts' tokens that must be spared where what all begin with is read once: what stands behind it is
read under a mask, which costs more than none."""


class Lean:
    """A network's copy that decodes rows side by side: see Steps.

    Args:
        net: one that is `usual`.
        finish: what it does to its logits after the output layer.
        dtype: in which matrices are multiplied.
        bases: weights of frozen networks, which several may share.
        go_on: called before each part of the prompts.
    """

    reads: ClassVar[float] = 2048
    """Tokens of prompts that are read at once: what is computed of them stays in a processor's cache."""

    def __init__(
        self,
        net: PreTrainedModel,
        finish: Callable[[torch.Tensor], torch.Tensor],
        dtype: torch.dtype = torch.float32,
        bases: Bases | None = None,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = Network(net, finish)
        self._dtype = dtype
        self._bases: Bases = {} if bases is None else bases
        self._go_on = go_on
        self._heads, self._groups, self._dim = self._network.heads, self._network.groups, self._network.dim
        self._seen: list[tuple[int, int]] = []
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    @torch.no_grad()
    def refresh(self) -> None:
        """Copies the network's weights, if they have changed since the last copy."""
        seen = [(id(weight), weight._version) for weight in self._network.net.parameters()]  # noqa: SLF001
        if seen != self._seen:
            self._seen = seen
            bases = None if self._dtype == torch.float32 else self._bases
            self._weights = merged(self._network.net, self._laid, self._typed, bases)

    def _typed(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.to(self._dtype)

    def _laid(self, weight: torch.Tensor) -> torch.Tensor:
        """Returns a weight in the type of products, in memory by what it reads: few rows are multiplied faster so."""
        return weight.to(self._dtype).t().contiguous().t()

    @property
    def copies(self) -> list[torch.Tensor]:
        """Weights that are not the network's own tensors."""
        own = {id(weight) for weight in self._network.net.parameters()}
        return [tensor for tensor in self._weights.tensors if id(tensor) not in own]

    def start(
        self, ids: torch.Tensor, mask: torch.Tensor | None, repeat: torch.Tensor, room: int, head: int = 0
    ) -> torch.Tensor:
        """Reads prompts, and sets memory aside for the rows that go on from them.

        Padding is moved behind the prompts' head, where they have one that is worth it.

        Args:
            ids: (P, T), of prompts, padded before them.
            mask: (P, T), 0 where there is padding; None: there is none.
            repeat: (R,), each row's prompt.
            room: tokens that a row may take beside.
            head: tokens that all prompts begin with, fewer than the shortest has.

        Returns:
            (R, V), what comes next.
        """
        (prompts, length), rows = ids.shape, len(repeat)
        places = torch.arange(length + room, device=ids.device)
        self._turns, turns = self._network.turns(length + room), None
        self._padding = mask if mask is None else length - mask.sum(dim=1)
        head = head if head * (prompts - 1) >= HEAD * prompts * length else 0
        if self._padding is not None:
            turns = self._turns[(places[head:length] - self._padding[:, None]).clamp(min=0)]
        self._read = length if rows >= SHARED * prompts and rows * length >= LONG else 0
        self._filled = length - self._read
        size = rows * self._groups, self._filled + room, self._dim
        self._keys, self._values = ([self._empty(size) for _ in self._weights.layers] for _ in range(2))
        some = min(prompts, max(1, int(self.reads // (length - head))))
        table = prompts if self._read else some, self._groups, length, self._dim
        self._shared = [(self._empty(table), self._empty(table)) for _ in self._weights.layers]
        if head:
            begin = 0 if self._padding is None else int(self._padding[0])
            self._read_some(ids[:1, begin : begin + head], None, self._turns[:head], slice(0, 1))
            for kept in (each for both in self._shared for each in both):
                kept[1:, :, :head] = kept[:1, :, :head]
        seen = None if self._padding is None else places[: length - head] >= self._padding[:, None]
        parts = list[torch.Tensor]()
        for at in range(0, prompts, some):
            self._go_on()
            which = slice(at, min(at + some, prompts))
            parts.append(
                self._read_some(
                    ids[which, head:],
                    None if seen is None else seen[which],
                    self._turns[head:length] if turns is None else turns[which],
                    which if self._read else slice(0, which.stop - at),
                    head,
                )
            )
            if not self._read:
                self._hand_out(repeat, which, prompts, length)
        if not self._read:
            self._shared = []
        self._prompts, self._blank = repeat, None
        if self._padding is not None:
            self._padding = self._padding[repeat]
            self._blank = _blank((places < head) | (places >= head + self._padding[:, None]))
        self._arrange()
        return self._network.logits(self._weights, torch.cat(parts))[repeat]

    def _empty(self, size: tuple[int, ...]) -> torch.Tensor:
        """Returns memory for keys or values."""
        return self._weights.words.new_empty(size, dtype=self._network.dtype)

    def _hand_out(self, repeat: torch.Tensor, which: slice, count: int, length: int) -> None:
        """Writes what was kept of some of the prompts to the rows that go on from them."""
        rows, prompts = slice(None), repeat
        if which.stop - which.start < count:  # else all of them, without a look at their numbers
            rows = ((repeat >= which.start) & (repeat < which.stop)).nonzero()[:, 0]
            prompts = repeat[rows] - which.start
        for slabs, kept in zip((self._keys, self._values), zip(*self._shared, strict=True), strict=True):
            for slab, each in zip(slabs, kept, strict=True):
                slab.view(-1, self._groups, *slab.shape[1:])[rows, :, :length] = each[prompts]

    def _read_some(
        self, ids: torch.Tensor, seen: torch.Tensor | None, turns: torch.Tensor, where: slice, begin: int = 0
    ) -> torch.Tensor:
        """Reads some prompts' tokens, no more than a processor keeps at hand. Returns their last states, (some, W).

        Args:
            ids: (some, N).
            seen: (some, N), False at padding; None: there is none.
            turns: as Network.through takes them.
            where: they are kept.
            begin: the place of the first of them; what stands before it is kept already.
        """
        count = ids.shape[1]
        blank, end = None, begin + count
        if begin or seen is not None:
            before = torch.ones(count, end, dtype=torch.bool, device=ids.device).tril(begin)[None, None]
            if seen is not None:
                before = before & torch.cat([seen.new_ones(len(ids), begin), seen], dim=1)[:, None, None]
            blank = _blank(before)

        def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            kept, kept_values = (tensor[where, :, :end] for tensor in self._shared[layer])
            kept[:, :, begin:], kept_values[:, :, begin:] = keys.transpose(1, 2), values.transpose(1, 2)
            asked = queries.transpose(1, 2)
            if queries.shape[1] < count:  # the last alone
                found, _ = grouped_sums(asked, kept, kept_values, None if blank is None else blank[:, :, -1:])
            else:
                found = grouped(asked, kept, kept_values, blank, 1.0)
            return found.transpose(1, 2)

        return self._network.through(self._weights, ids, turns, attend, count - 1)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Takes one more token of each row.

        Args:
            ids: (R,).

        Returns:
            (R, V), what comes next.
        """
        at, rows = self._filled, len(ids)
        place = self._read + at
        turns = self._turns[place] if self._padding is None else self._turns[place - self._padding][:, None]
        self._filled += 1
        table = rows * self._groups, -1, self._dim
        blank = None
        if self._blank is not None and not self._read:
            blank = self._blank[:, : at + 1].repeat_interleave(self._groups, dim=0)[:, None]

        def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            kept, kept_values = self._keys[layer], self._values[layer]
            kept[:, at], kept_values[:, at] = keys.reshape(-1, self._dim), values.reshape(-1, self._dim)
            scores = queries.reshape(table).bmm(kept[:, : at + 1].transpose(1, 2))
            if blank is not None:
                scores += blank
            seen = kept_values[:, : at + 1]
            if not self._read:
                return scores.softmax(dim=-1).bmm(seen).view(rows, self._heads, self._dim)
            found, own = weighed(scores, seen)
            before, sums = self._before(layer, queries[:, 0])
            share = (sums - own.view(rows, self._heads)).sigmoid_()
            return torch.lerp(found.view(rows, self._heads, self._dim), before, share[..., None])

        return self._network.logits(self._weights, self._network.through(self._weights, ids[:, None], turns, attend, 0))

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some of the rows; those that change their place are copied.

        Args:
            rows: (K,), their numbers, in the order in which they are from now on.
        """
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        for slabs in (self._keys, self._values):
            for at, slab in enumerate(slabs):
                there = slab.view(-1, self._groups, *slab.shape[1:])
                there[moved, :, : self._filled] = there[rows[moved], :, : self._filled]
                slabs[at] = slab[: len(rows) * self._groups]
        self._prompts = self._prompts[rows]
        if self._padding is not None and self._blank is not None:
            self._padding, self._blank = self._padding[rows], self._blank[rows]
        self._arrange()

    def _arrange(self) -> None:
        """Puts rows that share a prompt side by side, in a table of prompts; those whose rows have ended leave it."""
        if not self._read:
            return
        kept, inverse, counts = self._prompts.unique(return_inverse=True, return_counts=True)
        if len(kept) < len(self._shared[0][0]):
            self._shared = [(keys[kept], values[kept]) for keys, values in self._shared]
            self._prompts = inverse
        self._table = len(kept), int(counts.max())
        order = inverse.argsort(stable=True)
        within = torch.arange(len(inverse), device=inverse.device) - (counts.cumsum(0) - counts)[inverse[order]]
        self._places = torch.empty_like(inverse)
        self._places[order] = inverse[order] * self._table[1] + within
        first = order[counts.cumsum(0) - counts]
        self._prompt_blank = None if self._blank is None else self._blank[first, None, None, : self._read]

    def _before(self, layer: int, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the attention of each row to its prompt, (R, H, D), and the log-sum-exp of its scores there, (R, H).

        Args:
            queries: (R, H, D).
        """
        prompts, most = self._table
        table = queries.new_zeros(prompts * most, self._heads, self._dim)
        table[self._places] = queries
        table = table.view(prompts, most, self._heads, self._dim).transpose(1, 2)
        found, sums = grouped_sums(table, *self._shared[layer], self._prompt_blank)
        return found.transpose(1, 2).flatten(0, 1)[self._places], sums.transpose(1, 2).flatten(0, 1)[self._places]

    def clear(self) -> None:
        """Frees the memory that rows have taken."""
        self._keys, self._values, self._shared = [], [], []


def _blank(seen: torch.Tensor) -> torch.Tensor:
    """Returns the mask to add to scores: the least number where nothing is seen, so that every row has a mean."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)
