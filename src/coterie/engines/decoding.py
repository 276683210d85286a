"""Decoding in the embedded engine: rows of one policy, token by token.

Each distinct prompt is read once and its cache repeated for its samples; rows that have
ended leave the batch. Log-probabilities are those of the distribution sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from random import Random
from typing import Any

import torch
from transformers import PreTrainedModel

from coterie.engines.graphs import Graphs, recordable
from coterie.engines.lean import Lean
from coterie.engines.steps import Modules, Steps
from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample, SampleFinish
from coterie.kernel.stopping import cut
from coterie.learning.batch import common
from coterie.learning.distribution import inverse_cdf, log_distribution, nucleus
from coterie.learning.masks import sees_all
from coterie.learning.policy import Policy
from coterie.models.copies import copied
from coterie.models.lean import LARGE, Bases, usual
from coterie.models.memory import GIB, free_bytes
from coterie.models.meter import LOGIT_BYTES, LOGITS_MEMORY, Meter, at_once

TRAINED_BYTES = 12
"""Bytes that a trained weight takes beside itself: its gradient and AdamW's two averages, in float32."""
DRAWN = 32
"""Tokens whose random numbers are drawn at once."""
PROBES = 17, 33, 49
"""Tokens of measured prompts: differences say what a token takes, and what grows with the square of a prompt's. One
more than a graph's columns are a multiple of, so that a row is counted with the most that are set aside beside."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes that decoding takes.

    token: in the cache of a row. row: of a row, whatever its length. choice: of a row, while its next token is chosen,
    which is done in parts. prompt: of a token of a prompt, beside its cache, while prompts are read. attention: then of
    a prompt, times the square of its tokens: masks, and what attention makes where no kernel spares it. reads: tokens
    of prompts that are read at once.
    """

    token: int
    row: int
    choice: int
    prompt: int
    attention: float
    reads: float

    def of(self, rows: int, prompts: int, longest: int, max_tokens: int) -> int:
        """Returns the bytes that a batch takes at most.

        Args:
            prompts: how many are distinct; all are as long as the longest.
            max_tokens: of a reply.
        """
        together = int(min(prompts, max(1.0, self.reads / longest)))
        reading = together * (longest * self.prompt + int(longest**2 * self.attention))
        choosing = min(rows * self.choice, max(self.choice, LOGITS_MEMORY))
        return rows * (self.row + (longest + max_tokens) * self.token) + max(reading, choosing)


@dataclass(slots=True)
class DecodingRow:
    """A sample that is being decoded."""

    request: Request
    seed: int
    chance: Random
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish: SampleFinish | None = None

    def drawn(self) -> list[float]:
        """Returns the numbers of the next DRAWN tokens: a row has its own, whoever is beside it."""
        return [self.chance.random() for _ in range(DRAWN)]


class Decoder:
    """A sampler of one policy's replies.

    Where its network can be decoded without its modules, that reads the learner's own weights and keeps a copy in the
    type that the policy computes in. Otherwise it is the learner's own network, where its weights are of that type, or
    a copy of it. `refresh` makes copies equal again.

    Args:
        bases: what policies on one base share of their copies.
        go_on: called before each part of the prompts and each token; it raises to end a batch early.
    """

    def __init__(self, policy: Policy, bases: Bases | None = None, go_on: Callable[[], None] = lambda: None) -> None:
        self.model = policy.model
        self.dtype = policy.dtype
        net, whole = self.model.net, sees_all(self.model.config, self.model.context)
        self.lean = self.model.lean and leans(net, self.dtype, net.device.type) and whole
        self.graphs = self.model.graphs and recordable(net) and whole
        self._bases = bases
        self._go_on = go_on
        self._copy: Lean | None = None

    @cached_property
    def net(self) -> PreTrainedModel:
        """The network that is run by its modules, or by a graph."""
        net = self.model.net
        if self.lean or next(net.parameters()).dtype == self.dtype:
            return net
        return copied(net, lambda weight: weight.to(self.dtype))

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the weights of the policy."""
        self._copy = None
        if self.net is not self.model.net:
            source = self.model.net.state_dict()
            for name, weight in self.net.state_dict().items():
                weight.copy_(source[name])

    @cached_property
    def costs(self) -> Costs:
        """Memory that decoding takes, found on short prompts."""
        return costs_of(self.net, self.steps(), pads=self.model.pads)

    def _takes(self, rows: int, prompts: int, prompt_tokens: int, max_tokens: int, memory: float) -> bool:
        """Returns True if a batch takes more memory than there is; nothing is measured where memory has no end."""
        return memory < math.inf and self.costs.of(rows, prompts, prompt_tokens, max_tokens) > memory

    def batches(self, rows: Sequence[DecodingRow], memory: float) -> Iterator[list[DecodingRow]]:
        """Yields the rows that are decoded side by side: short prompts first, of one length where it must be.

        Args:
            memory: bytes that a batch may take; a row that takes more is alone.
        """
        order = sorted(rows, key=lambda row: (len(row.request.prompt_ids), row.request.prompt_ids))
        together = [order] if self.model.pads else [list(same) for _, same in groupby(order, _prompt_tokens)]
        for some in together:
            batch: list[DecodingRow] = []
            prompts, max_tokens = 0, 0
            for row in some:
                another = not batch or batch[-1].request.prompt_ids != row.request.prompt_ids
                prompts, max_tokens = prompts + another, max(max_tokens, row.request.max_tokens)
                if batch and self._takes(len(batch) + 1, prompts, _prompt_tokens(row), max_tokens, memory):
                    yield batch
                    batch, prompts, max_tokens = [], 1, row.request.max_tokens
                batch.append(row)
            yield batch

    @torch.no_grad()
    def fill(self, rows: Sequence[DecodingRow]) -> None:
        """Decodes rows to their end, a token of each at a time."""
        device, limits = self.model.device, [row.request.max_tokens for row in rows]
        stop = torch.tensor(sorted(self.model.stop_ids), device=device, dtype=torch.int64)
        limit = torch.tensor(limits, device=device)
        temperatures = torch.tensor([row.request.temperature for row in rows], device=device)
        ids = torch.zeros(len(rows), max(limits), dtype=torch.int64, device=device)
        logprobs = torch.zeros(ids.shape, device=device)
        uniform = torch.zeros(len(rows), DRAWN, dtype=torch.float64)
        steps = self.steps()
        logits = self._start(steps, rows)
        numbers = list(range(len(rows)))
        alive = torch.tensor(numbers, device=device)
        for at in range(max(limits)):
            self._go_on()
            if at % DRAWN == 0:
                uniform[numbers] = torch.tensor([rows[number].drawn() for number in numbers], dtype=torch.float64)
            chosen, logprob = self._choose(logits, uniform[numbers, at % DRAWN], temperatures[alive], rows[0])
            ids[alive, at], logprobs[alive, at] = chosen, logprob
            ended = (chosen[:, None] == stop).any(dim=1) | (limit[alive] == at + 1)
            over = set(ended.nonzero()[:, 0].tolist())
            for place, number in enumerate(numbers):
                if (asked := rows[number].request.stop) and cut(self._text(ids[number, : at + 1].tolist()), asked)[1]:
                    over.add(place)
            for place in over:
                row, number = rows[numbers[place]], numbers[place]
                row.ids, row.logprobs = ids[number, : at + 1].tolist(), logprobs[number, : at + 1].tolist()
                row.finish = self._finish(row)
            if len(over) == len(numbers):
                steps.clear()
                return
            if over:
                places = _moved_up(len(numbers), over)
                numbers = [numbers[place] for place in places]
                kept = torch.tensor(places, device=device)
                alive, chosen = alive[kept], chosen[kept]
                steps.keep(kept)
            logits = steps.step(chosen)

    def steps(self) -> Steps:
        """Returns the steps that take the network from token to token, with the weights as they are."""
        if not self.lean:
            return Graphs(self.net) if self.graphs else Modules(self.net)
        new = self._copy is None
        self._copy = self._copy or Lean(self.net, self.model.finish, self.dtype, self._bases, self._go_on)
        if new or self.dtype == torch.float32:  # which is the learner's own network; a copy in another type waits
            self._copy.refresh()
        return self._copy

    def _start(self, steps: Steps, rows: Sequence[DecodingRow]) -> torch.Tensor:
        """Returns logits (R, V) after each row's prompt; each distinct prompt is read once, padded where it must be."""
        device = self.model.device
        prompts = list(dict.fromkeys(row.request.prompt_ids for row in rows))
        longest = max(map(len, prompts))
        ids = torch.tensor([(0,) * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
        mask = None
        if any(len(prompt) < longest for prompt in prompts):
            lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
            mask = (torch.arange(longest, device=device) >= longest - lengths[:, None]).long()
        index = {prompt: at for at, prompt in enumerate(prompts)}
        repeat = torch.tensor([index[row.request.prompt_ids] for row in rows], device=device)
        head = min(common(min(prompts), max(prompts)), min(map(len, prompts)) - 1) if self.model.shares else 0
        return steps.start(ids, mask, repeat, max(row.request.max_tokens for row in rows), head)

    def _choose(
        self, logits: torch.Tensor, uniform: torch.Tensor, temperatures: torch.Tensor, row: DecodingRow
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the next token of each row, and its log-probability, (R,) each.

        Args:
            row: one of them; all have its top_p.
        """
        size = at_once(logits.shape[-1])
        each = zip(logits.split(size), uniform.split(size), temperatures.split(size), strict=True)
        parts = [self._chosen(*part, row.request.top_p) for part in each]
        ids, logprobs = zip(*parts, strict=True)
        return torch.cat(ids), torch.cat(logprobs)

    def _chosen(
        self, logits: torch.Tensor, uniform: torch.Tensor, temperatures: torch.Tensor, top_p: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        greedy = temperatures == 0
        distribution = log_distribution(logits, temperatures.masked_fill(greedy, 1.0)[:, None], self.model.vocabulary)
        distribution = nucleus(distribution, top_p)
        ids = inverse_cdf(distribution, uniform)
        chosen = distribution.gather(-1, ids[:, None])[:, 0]
        if greedy.any():  # the most likely token is taken with probability 1
            ids, chosen = torch.where(greedy, distribution.argmax(dim=-1), ids), chosen.masked_fill(greedy, 0.0)
        return ids, chosen

    def _finish(self, row: DecodingRow) -> SampleFinish:
        if row.ids[-1] in self.model.stop_ids:
            return "stop"
        stop = row.request.stop
        return "string" if stop and cut(self._text(row.ids), stop)[1] else "length"

    def _text(self, ids: Sequence[int]) -> str:
        return self.model.tokenizer.decode(ids, skip_special_tokens=False)

    def sample(self, row: DecodingRow, version: int) -> Sample:
        """Returns a row that has ended, as a sample.

        Args:
            version: of the weights.
        """
        request = row.request
        assert row.finish is not None
        text = self._text(row.ids[:-1] if row.finish == "stop" else row.ids)
        return Sample(
            role=request.role,
            policy=request.policy,
            version=version,
            prompt_ids=request.prompt_ids,
            completion_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            finish=row.finish,
            text=text if row.finish != "string" else cut(text, request.stop)[0],
            seed=row.seed,
            temperature=request.temperature,
        )


def leans(net: PreTrainedModel, dtype: torch.dtype, device: str) -> bool:
    """Returns True if a network is decoded without its modules: on a GPU, recorded graphs decode large networks."""
    small = net.num_parameters() <= LARGE and net.dtype == dtype == torch.float32
    return usual(net) and (small or device == "cpu")


@torch.no_grad()
def costs_of(net: Any, steps: Steps, *, pads: bool) -> Costs:
    """Measures the memory that decoding with a network takes, on short prompts, two at a time.

    Args:
        net: with numbers or without.
        steps: how it is run.
        pads: prompts of several lengths may stand side by side, which takes a mask.
    """
    kept, passing = list[int](), list[int]()
    config, known = net.config.get_text_config(), [*net.state_dict().values(), *steps.copies]
    word = (getattr(config, "pad_token_id", None) or 0) + 1  # of padding alone there is a warning
    for tokens in PROBES:
        ids = torch.full((2, tokens), word, device=net.device)
        mask = torch.ones_like(ids)
        mask[0, 0] = 0
        each = torch.arange(2, device=net.device)
        with Meter([*known, ids, mask, each]) as meter:
            logits = steps.start(ids, mask if pads else None, each, 0)
            kept.append(meter.live // 2)
            passing.append((meter.peak - meter.live) // 2)
            del logits
        steps.clear()
    step = PROBES[1] - PROBES[0]
    token = (kept[1] - kept[0]) // step
    attention = max(0.0, (passing[2] - 2 * passing[1] + passing[0]) / (2 * step**2))
    prompt = (passing[1] - passing[0]) / step - attention * (PROBES[0] + PROBES[1])
    row, choice = kept[0] - token * PROBES[0], LOGIT_BYTES * config.vocab_size
    return Costs(token, max(0, row), choice, max(0, int(prompt)), attention, steps.reads)


def left_bytes(policies: Sequence[Policy]) -> int:
    """Returns the bytes that training will leave free on the policies' devices; the least, where there are several."""
    trained = dict.fromkeys((policy.device for policy in policies), 0)
    for policy in policies:
        trained[policy.device] += TRAINED_BYTES * sum(weight.numel() for weight in policy.model.trained)
    return min(free_bytes(device) - taken for device, taken in trained.items())


def budget_gib(left: int) -> float:
    """Returns half of the bytes that are left, to a power of two, in GiB; an eighth of one at least."""
    return 2.0 ** math.floor(math.log2(max(left / 2, GIB / 8) / GIB))


def _moved_up(count: int, over: Container[int]) -> list[int]:
    """Returns the places that go on, as few as can be elsewhere than before: the last ones fill the gaps."""
    going = [place for place in range(count) if place not in over]
    left = [place for place in going if place >= len(going)]
    return [left.pop() if place in over else place for place in range(len(going))]


def _prompt_tokens(row: DecodingRow) -> int:
    return len(row.request.prompt_ids)
