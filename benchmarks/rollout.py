"""Useful tokens per second of the embedded engine and of padded `model.generate`.

There are 16 prompts of 200 tokens with 8 samples each. Reply lengths are geometric with mean 16 and maximum
64. The model has 3.3 million parameters and runs with one thread.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from statistics import median
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from benchmarks.models import medium
from coterie.bench import Say
from coterie.engines.transformers import TransformersEngine
from coterie.kernel.engine import Request
from coterie.learning.policy import Policy
from coterie.models.load import Model

PROMPTS, SAMPLES, PROMPT_TOKENS, MEAN, CAP, REPEATS = 16, 8, 200, 16, 64, 5


class _EndAt(LogitsProcessor):
    """Makes row i end after lengths[i] tokens and not before."""

    def __init__(self, lengths: list[int], end: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.end = end

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        ending = self.lengths == input_ids.shape[1] - PROMPT_TOKENS + 1
        scores[:, self.end] = float("-inf")
        scores[ending] = float("-inf")
        scores[ending, self.end] = 0.0
        return scores


def run(say: Say) -> dict[str, Any]:
    """Returns the median tokens per second of both, and their ratio."""
    torch.set_num_threads(1)
    model = medium()
    rng = Random(0)
    prompts = [tuple(rng.randrange(3, 300) for _ in range(PROMPT_TOKENS)) for _ in range(PROMPTS)]
    lengths = [min(CAP, _geometric(rng)) for _ in range(PROMPTS * SAMPLES)]
    engine = TransformersEngine({"p": Policy("p", model)})
    model.stop_ids = frozenset()  # random weights would end by chance; lengths are the benchmark's
    ours: list[float] = []
    theirs: list[float] = []
    for repeat in range(REPEATS + 1):
        for times, play in (
            (ours, lambda: _engine(engine, prompts, lengths)),
            (theirs, lambda: _generate(model, prompts, lengths)),
        ):
            began = time.perf_counter()
            play()
            if repeat:  # the first warms up
                times.append(time.perf_counter() - began)
        say(f"round {repeat} of {REPEATS}")
    tokens = sum(lengths)
    return {
        "useful_tokens": tokens,
        "engine_tokens_per_s": round(tokens / median(ours)),
        "generate_tokens_per_s": round(tokens / median(theirs)),
        "ratio": round(median(theirs) / median(ours), 2),
    }


def _geometric(rng: Random) -> int:
    length = 1
    while rng.random() > 1 / MEAN:
        length += 1
    return length


def _engine(engine: TransformersEngine, prompts: list[tuple[int, ...]], lengths: list[int]) -> None:
    requests = [
        Request((f"{at:04}", 0, "", ""), "p", "", "", prompts[at // SAMPLES], (at,), 1.0, 1.0, length, ())
        for at, length in enumerate(lengths)
    ]
    answers = asyncio.run(engine.generate(requests))
    assert [len(sample.completion_ids) for (sample,) in answers] == lengths


def _generate(model: Model, prompts: list[tuple[int, ...]], lengths: list[int]) -> None:
    net: Any = model.net
    net.generate(
        torch.tensor(prompts),
        num_return_sequences=SAMPLES,
        do_sample=True,
        top_k=0,
        max_new_tokens=CAP,
        logits_processor=LogitsProcessorList([_EndAt(lengths, model.tokenizer.eos_token_id)]),
    )
