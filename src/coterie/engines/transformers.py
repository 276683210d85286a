"""The embedded engine: samples from Hugging Face models in this process.

Each distinct prompt is prefilled once and its cache repeated for its samples; rows that have
ended leave the batch. Log-probabilities are those of the distribution sampled.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from coterie.kernel.engine import Request
from coterie.kernel.episode import LoggedPrompt, Sample, SampleFinish
from coterie.learning.distribution import inverse_cdf, log_distribution, nucleus
from coterie.models.load import Model
from coterie.models.rendering import Renderer


@dataclass(slots=True)
class _Row:
    """A sample on its way."""

    request: Request
    seed: int
    chance: Random
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish: SampleFinish | None = None


class TransformersEngine:
    """Holds a team's models and answers for them.

    Args: models: by policy. With float32 the learner's own networks are sampled from; with
        bfloat16 copies, which `sync` refreshes. rows: samples decoded at once. template: variables
        of the chat template, by policy.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        dtype: torch.dtype = torch.float32,
        rows: int = 1024,
        template: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.models = dict(models)
        self.versions = dict.fromkeys(models, 0)
        self._rows = rows
        self._dtype = dtype
        self._renderers = {
            name: Renderer(model.tokenizer, name, (template or {}).get(name)) for name, model in models.items()
        }
        self._nets: dict[str, PreTrainedModel] = {
            name: model.net if dtype == torch.float32 else _copied(model.net, dtype) for name, model in models.items()
        }

    @torch.no_grad()
    def sync(self, policy: str, version: int) -> None:
        """Takes over a policy's weights as they are now, under a new version number."""
        self.versions[policy] = version
        if self._dtype != torch.float32:
            source = self.models[policy].net.state_dict()
            for name, weight in self._nets[policy].state_dict().items():
                weight.copy_(source[name])

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """The token ids of a prompt, by the policy's chat template."""
        return self._renderers[policy](prompt, role)

    def context(self, policy: str) -> int:
        """The model's longest sequence."""
        return self.models[policy].context

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """One wave for one policy. Equal prompts are prefilled once, whoever asked."""
        rows = [_Row(request, seed, Random(seed)) for request in requests for seed in request.seeds]
        order = sorted(rows, key=lambda row: (len(row.request.prompt_ids), row.request.prompt_ids))
        for start in range(0, len(order), self._rows):
            self._decode(order[start : start + self._rows])
        samples = iter([self._sample(row) for row in rows])
        return [tuple(next(samples) for _ in request.seeds) for request in requests]

    @torch.no_grad()
    def _decode(self, rows: list[_Row]) -> None:
        """Fills rows to their end; all of one policy."""
        policy = rows[0].request.policy
        net, model = self._nets[policy], self.models[policy]
        logits, cache, mask = self._prefill(net, rows, model.device)
        while rows:
            ids = self._choose(logits, rows, model)
            for row, token in zip(rows, ids.tolist(), strict=True):
                self._note(row, token, model)
            alive = [at for at, row in enumerate(rows) if row.finish is None]
            if not alive:
                return
            if len(alive) < len(rows):
                rows = [rows[at] for at in alive]
                kept = torch.tensor(alive, device=model.device)
                cache.batch_select_indices(kept)
                ids = ids[kept]
                mask = mask if mask is None else mask[kept]
            inputs: dict[str, Any] = {}
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
                inputs = {"attention_mask": mask, "position_ids": mask.sum(dim=1, keepdim=True) - 1}
            logits = net(input_ids=ids[:, None], past_key_values=cache, **inputs).logits[:, -1]

    def _prefill(
        self, net: PreTrainedModel, rows: list[_Row], device: torch.device
    ) -> tuple[torch.Tensor, DynamicCache, torch.Tensor | None]:
        """Logits (R, V) after each row's prompt, the cache of R rows, and a mask where prompts are padded."""
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
        cache.batch_select_indices(repeat)
        return logits[repeat], cache, mask if mask is None else mask[repeat]

    def _choose(self, logits: torch.Tensor, rows: list[_Row], model: Model) -> torch.Tensor:
        """The next token of each row, noted with its log-probability. Returns (R,)."""
        temperatures = torch.tensor([row.request.temperature for row in rows], device=logits.device)[:, None]
        greedy = temperatures[:, 0] == 0
        distribution = log_distribution(logits, temperatures.masked_fill(temperatures == 0, 1.0), model.vocabulary)
        distribution = nucleus(distribution, rows[0].request.top_p)
        uniform = torch.tensor([row.chance.random() for row in rows], dtype=torch.float64)
        ids = torch.where(greedy, distribution.argmax(dim=-1), inverse_cdf(distribution, uniform))
        chosen = distribution.gather(-1, ids[:, None])[:, 0]
        chosen = chosen.masked_fill(greedy, 0.0)  # the most likely token is taken with probability 1
        for row, logprob in zip(rows, chosen.tolist(), strict=True):
            row.logprobs.append(logprob)
        return ids

    def _note(self, row: _Row, token: int, model: Model) -> None:
        row.ids.append(token)
        if token in model.stop_ids:
            row.finish = "stop"
        elif row.request.stop and _cut(self._text(row.ids, model), row.request.stop) is not None:
            row.finish = "string"
        elif len(row.ids) == row.request.max_tokens:
            row.finish = "length"

    @staticmethod
    def _text(ids: Sequence[int], model: Model) -> str:
        return model.tokenizer.decode(ids, skip_special_tokens=False)

    def _sample(self, row: _Row) -> Sample:
        request, model = row.request, self.models[row.request.policy]
        assert row.finish is not None
        text = self._text(row.ids[:-1] if row.finish == "stop" else row.ids, model)
        return Sample(
            role=request.role,
            policy=request.policy,
            version=self.versions[request.policy],
            prompt_ids=request.prompt_ids,
            completion_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            finish=row.finish,
            text=text if row.finish != "string" else text[: _cut(text, request.stop)],
            seed=row.seed,
            temperature=request.temperature,
        )


def _copied(net: Any, dtype: torch.dtype) -> PreTrainedModel:
    return copy.deepcopy(net).to(dtype)


def _cut(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins, or None."""
    places = [place for string in stop if (place := text.find(string)) >= 0]
    return min(places) if places else None
