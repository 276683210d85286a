"""How the embedded engine decodes: rows of one policy, token by token.

Each distinct prompt is prefilled once and its cache repeated for its samples; rows that have
ended leave the batch. Log-probabilities are those of the distribution sampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from random import Random
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample, SampleFinish
from coterie.kernel.stopping import cut
from coterie.learning.distribution import inverse_cdf, log_distribution, nucleus
from coterie.learning.policy import Policy
from coterie.models.load import copied
from coterie.models.memory import GIB, free_bytes
from coterie.models.meter import LOGIT_BYTES, LOGITS_MEMORY, Meter, at_once

TRAINED_BYTES = 12
"""Of a trained weight beside itself: its gradient and AdamW's two averages, in float32."""
PROBES = 16, 32, 48
"""Tokens of prompts whose differences say what a token takes, and what grows with the square of a prompt's."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes that decoding takes.

    token: in the cache of a row. row: of a row, whatever its length. choice: of a row, while its next token is chosen,
    which is done in parts. prompt: of a token of a prompt, beside its cache, while prompts are read. attention: then of
    a prompt, times the square of its tokens: masks, and what attention makes where no kernel spares it.
    """

    token: int
    row: int
    choice: int
    prompt: int
    attention: float

    def of(self, rows: int, prompts: int, longest: int, max_tokens: int) -> int:
        """What a batch takes at most.

        Args:
            prompts: how many are distinct; all are as long as the longest.
            max_tokens: of a reply.
        """
        reading = prompts * (longest * self.prompt + int(longest**2 * self.attention))
        choosing = min(rows * self.choice, max(self.choice, LOGITS_MEMORY))
        return rows * (self.row + (longest + max_tokens) * self.token) + max(reading, choosing)


@dataclass(slots=True)
class Row:
    """A sample on its way."""

    request: Request
    seed: int
    chance: Random
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish: SampleFinish | None = None


class Decoder:
    """Samples from one policy.

    That is the learner's own network, where its weights are of the type that it computes in; otherwise a copy, which
    `refresh` makes equal again.
    """

    def __init__(self, policy: Policy) -> None:
        self.model = policy.model
        self.net: PreTrainedModel = policy.model.net
        if next(self.net.parameters()).dtype != policy.dtype:
            self.net = copied(self.net, lambda weight: weight.to(policy.dtype))

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the weights of the policy."""
        if self.net is not self.model.net:
            source = self.model.net.state_dict()
            for name, weight in self.net.state_dict().items():
                weight.copy_(source[name])

    @cached_property
    def costs(self) -> Costs:
        """What decoding takes, found on short prompts."""
        return costs_of(self.net, pads=self.model.pads)

    def batches(self, rows: Sequence[Row], memory: float) -> Iterator[list[Row]]:
        """Rows that are decoded side by side: short prompts first, of one length where it must be.

        Args:
            memory: bytes that a batch may take; a row that takes more is alone.
        """
        order = sorted(rows, key=lambda row: (len(row.request.prompt_ids), row.request.prompt_ids))
        together = [order] if self.model.pads else [list(same) for _, same in groupby(order, _prompt_tokens)]
        for some in together:
            batch: list[Row] = []
            prompts, max_tokens = 0, 0
            for row in some:
                another = not batch or batch[-1].request.prompt_ids != row.request.prompt_ids
                prompts, max_tokens = prompts + another, max(max_tokens, row.request.max_tokens)
                if batch and self.costs.of(len(batch) + 1, prompts, _prompt_tokens(row), max_tokens) > memory:
                    yield batch
                    batch, prompts, max_tokens = [], 1, row.request.max_tokens
                batch.append(row)
            yield batch

    @torch.no_grad()
    def fill(self, rows: list[Row]) -> Iterator[None]:
        """Fills rows to their end, a token of each at a time."""
        logits, cache, mask = self._prefill(rows)
        while rows:
            yield
            ids = self._choose(logits, rows)
            for row, token in zip(rows, ids.tolist(), strict=True):
                self._note(row, token)
            alive = [at for at, row in enumerate(rows) if row.finish is None]
            if not alive:
                return
            if len(alive) < len(rows):
                rows = [rows[at] for at in alive]
                kept = torch.tensor(alive, device=self.model.device)
                _select(cache, kept)
                ids = ids[kept]
                mask = mask if mask is None else mask[kept]
            inputs: dict[str, Any] = {}
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
                inputs = {"attention_mask": mask, "position_ids": mask.sum(dim=1, keepdim=True) - 1}
            logits = self.net(input_ids=ids[:, None], past_key_values=cache, **inputs).logits[:, -1]

    def _prefill(self, rows: list[Row]) -> tuple[torch.Tensor, DynamicCache, torch.Tensor | None]:
        """Logits (R, V) after each row's prompt, the cache of R rows, and a mask where prompts are padded."""
        net, device = self.net, self.model.device
        prompts = list(dict.fromkeys(row.request.prompt_ids for row in rows))
        longest = max(map(len, prompts))
        ids = torch.tensor([(0,) * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
        cache = DynamicCache(config=net.config)
        inputs: dict[str, Any] = {}
        mask = None
        if any(len(prompt) < longest for prompt in prompts):
            lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
            mask = (torch.arange(longest, device=device) >= longest - lengths[:, None]).long()
            inputs = {"attention_mask": mask, "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)}
        logits = net(input_ids=ids, past_key_values=cache, logits_to_keep=1, **inputs).logits[:, -1]
        index = {prompt: at for at, prompt in enumerate(prompts)}
        repeat = torch.tensor([index[row.request.prompt_ids] for row in rows], device=device)
        _select(cache, repeat)
        return logits[repeat], cache, mask if mask is None else mask[repeat]

    def _choose(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        """The next token of each row, noted with its log-probability. Returns (R,)."""
        size = at_once(logits.shape[-1])
        parts = [self._chosen(logits[at : at + size], rows[at : at + size]) for at in range(0, len(rows), size)]
        return torch.cat(parts)

    def _chosen(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        temperatures = torch.tensor([row.request.temperature for row in rows], device=logits.device)[:, None]
        greedy = temperatures[:, 0] == 0
        distribution = log_distribution(logits, temperatures.masked_fill(temperatures == 0, 1.0), self.model.vocabulary)
        distribution = nucleus(distribution, rows[0].request.top_p)
        uniform = torch.tensor([row.chance.random() for row in rows], dtype=torch.float64)
        ids = torch.where(greedy, distribution.argmax(dim=-1), inverse_cdf(distribution, uniform))
        chosen = distribution.gather(-1, ids[:, None])[:, 0]
        chosen = chosen.masked_fill(greedy, 0.0)  # the most likely token is taken with probability 1
        for row, logprob in zip(rows, chosen.tolist(), strict=True):
            row.logprobs.append(logprob)
        return ids

    def _note(self, row: Row, token: int) -> None:
        row.ids.append(token)
        if token in self.model.stop_ids:
            row.finish = "stop"
        elif row.request.stop and cut(self._text(row.ids), row.request.stop)[1]:
            row.finish = "string"
        elif len(row.ids) == row.request.max_tokens:
            row.finish = "length"

    def _text(self, ids: Sequence[int]) -> str:
        return self.model.tokenizer.decode(ids, skip_special_tokens=False)

    def sample(self, row: Row, version: int) -> Sample:
        """A row that has ended, as a sample.

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


@torch.no_grad()
def costs_of(net: Any, *, pads: bool) -> Costs:
    """What decoding with a network takes, found on short prompts, two at a time.

    Args:
        net: with numbers or without.
        pads: prompts of several lengths may stand side by side, which takes a mask.
    """
    kept, passing = list[int](), list[int]()
    config = net.config.get_text_config()
    word = (getattr(config, "pad_token_id", None) or 0) + 1  # of padding alone there is a warning
    for tokens in PROBES:
        ids = torch.full((2, tokens), word, device=net.device)
        mask = torch.ones_like(ids)
        mask[0, 0] = 0
        inputs: dict[str, Any] = {"attention_mask": mask, "position_ids": mask.cumsum(dim=1)} if pads else {}
        with Meter([*net.state_dict().values(), ids, *inputs.values()]) as meter:
            cache = DynamicCache(config=net.config)
            logits = net(input_ids=ids, past_key_values=cache, logits_to_keep=1, **inputs).logits
            kept.append(meter.live // 2)
            passing.append((meter.peak - meter.live) // 2)
            del cache, logits
    step = PROBES[1] - PROBES[0]
    token = (kept[1] - kept[0]) // step
    attention = max(0.0, (passing[2] - 2 * passing[1] + passing[0]) / (2 * step**2))
    prompt = (passing[1] - passing[0]) / step - attention * (PROBES[0] + PROBES[1])
    row, choice = kept[0] - token * PROBES[0], LOGIT_BYTES * config.vocab_size
    return Costs(token, max(0, row), choice, max(0, int(prompt)), attention)


def left_bytes(policies: Sequence[Policy]) -> int:
    """What the training of policies will leave free on their devices; the least, where there are several."""
    trained = dict.fromkeys((policy.device for policy in policies), 0)
    for policy in policies:
        trained[policy.device] += TRAINED_BYTES * sum(weight.numel() for weight in policy.model.trained)
    return min(free_bytes(device) - taken for device, taken in trained.items())


def budget_gib(left: int) -> float:
    """Half of the bytes that are left, to a power of two, GiB; an eighth of one at least."""
    return 2.0 ** math.floor(math.log2(max(left / 2, GIB / 8) / GIB))


def _select(cache: DynamicCache, rows: torch.Tensor) -> None:
    """Keeps or repeats rows of a cache, by the one way that recurrent states have too."""
    cache.reorder_cache(rows)  # pyright: ignore[reportArgumentType]


def _prompt_tokens(row: Row) -> int:
    return len(row.request.prompt_ids)
