"""Decoding with CUDA graphs; see Steps.

One token of a large network takes about a thousand kernels. The GPU finishes a kernel before Python launches the next.
A CUDA graph holds all kernels and is launched once. It needs memory at fixed addresses: a cache of fixed length, and a
mask of what each row has filled. A new graph is recorded in two cases: when the cache is full and grows, and when half
of more than `FEW` rows have ended. Until then ended rows are still computed; then the others are moved together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel

from coterie.engines.steps import read
from coterie.models.attention import KEYWORD, SEEN, installed
from coterie.models.lean import usual_layers

FEW = 16
"""Number of rows up to which fewer take no less time: that of reading the weights."""
ALIGNED = 16
"""Number of which the columns of a mask are a multiple, or attention would copy it in every layer."""
GROWTH = 256
"""Tokens that a cache grows by: what is set aside is read for every token, and a recording takes the time of some."""


def recordable(net: PreTrainedModel) -> bool:
    """Returns True if a network is on CUDA and asks for nothing between its kernels, however far back it looks."""
    return net.device.type == "cuda" and usual_layers(net) and installed(net)


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream for a device's recordings: libraries set memory aside for each stream and never free it."""
    return torch.cuda.Stream(device)


def aligned(columns: int) -> int:
    """Rounds a number of columns up to a multiple of ALIGNED."""
    return -(-columns // ALIGNED) * ALIGNED


class Slabs:
    """Keys and values of rows, (R, G, T, D) a layer, as a network asks a cache for them.

    place: (1,), the column of the next token.
    """

    def __init__(self, place: torch.Tensor) -> None:
        self.place = place
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds the keys and values of a token of each row, (R, G, 1, D). Returns all that there is."""
        for slab, one in ((self.keys[layer], keys), (self.values[layer], values)):
            slab.index_copy_(2, self.place, one.to(slab.dtype))
        return self.keys[layer], self.values[layer]


class Graphs:
    """Decoding with a recorded CUDA graph; without CUDA the same is computed without a recording."""

    reads: ClassVar[float] = math.inf

    def __init__(self, net: PreTrainedModel) -> None:
        self._net = net
        self._graph: torch.cuda.CUDAGraph | None = None

    def start(
        self, ids: torch.Tensor, mask: torch.Tensor | None, repeat: torch.Tensor, room: int, head: int = 0
    ) -> torch.Tensor:
        """Reads prompts, see Steps."""
        logits, prompts = read(self._net, ids, mask)
        (_, length), rows = ids.shape, len(repeat)
        columns, self._most = aligned(length + min(room, GROWTH)), aligned(length + room)
        self._slabs = Slabs(torch.zeros(1, dtype=torch.int64, device=ids.device))
        for layer in prompts.layers:
            there: Any = layer
            for slabs, each in ((self._slabs.keys, there.keys), (self._slabs.values, there.values)):
                slab = each.new_zeros(rows, each.shape[1], columns, each.shape[3])  # what is masked must be a number
                slab[:, :, :length] = each[repeat]
                slabs.append(slab)
        self._filled = length
        self._ids = ids.new_zeros(rows, 1)
        self._seen = torch.zeros(rows, 1, 1, columns, dtype=torch.bool, device=ids.device)
        self._seen[:, 0, 0, :length] = True if mask is None else mask[repeat].bool()
        self._positions = self._seen.sum(dim=(2, 3)) - 1
        self._places = torch.arange(rows, device=ids.device)
        return logits[repeat]

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Takes one more token of each row, see Steps."""
        if self._filled == self._seen.shape[-1]:
            self._grow()
        self._ids[self._places, 0] = ids
        self._seen[..., self._filled] = True
        self._slabs.place.fill_(self._filled)
        self._positions += 1
        self._filled += 1
        if not self._ids.is_cuda:
            self._logits = self._forward()
        elif self._graph is None:
            with torch.cuda.device(self._ids.device):  # of several, streams are the current one's
                self._record()
        if self._graph is not None:
            self._graph.replay()
        return self._logits[self._places]

    def _forward(self) -> torch.Tensor:
        net: Any = self._net
        said = {"attention_mask": self._seen, KEYWORD: SEEN}
        return net(input_ids=self._ids, position_ids=self._positions, past_key_values=self._slabs, **said).logits[:, -1]

    def _record(self) -> None:
        """Records the graph. It is computed once before, for what is made when it is first asked for."""
        settled = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(False)  # or a token would be put in its place by sorting
        here, aside = torch.cuda.current_stream(), _aside(self._ids.device)
        try:
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                self._forward()
            here.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
                self._logits = self._forward()
            self._graph = graph
        finally:
            torch.cuda.set_stream(here)  # where one stays that could not be ended
            torch.use_deterministic_algorithms(settled[0], warn_only=settled[1])

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some of the rows, see Steps."""
        self._places = self._places[rows]
        if len(self._ids) <= FEW or 2 * len(rows) > len(self._ids):
            return
        self._forget()
        for slabs in (self._slabs.keys, self._slabs.values):
            for at, slab in enumerate(slabs):
                slabs[at] = slab[self._places]
        self._ids, self._seen, self._positions = (
            tensor[self._places] for tensor in (self._ids, self._seen, self._positions)
        )
        self._places = torch.arange(len(rows), device=rows.device)

    def _grow(self) -> None:
        """Adds columns to the cache and the mask, layer by layer."""
        self._forget()
        more = min(aligned(self._filled + GROWTH), self._most) - self._filled
        for slabs in (self._slabs.keys, self._slabs.values):
            for at, slab in enumerate(slabs):
                slabs[at] = pad(slab, (0, 0, 0, more))
        self._seen = pad(self._seen, (0, more))

    def _forget(self) -> None:
        self._graph, self._logits = None, torch.empty(0)

    def clear(self) -> None:
        """Frees the memory that rows have taken, see Steps."""
        self._forget()
        del self._slabs, self._seen

    @property
    def copies(self) -> Sequence[torch.Tensor]:
        """Copies of weights: none."""
        return ()
