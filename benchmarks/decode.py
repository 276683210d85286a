"""Tokens per second of the embedded engine, with and without the network's modules: 1 to 1,024 rows, 8 per prompt.

The model has 0.85 million parameters; prompts have 100 tokens and replies 24. Both ways run in turns in one process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any

import torch

from benchmarks.models import random_qwen3
from benchmarks.update import SIZES
from coterie.bench import Say
from coterie.engines.transformers import TransformersEngine
from coterie.kernel.engine import Request
from coterie.learning.policy import Policy

ROWS = (1, 16, 128, 1024)
PROMPT, REPLY, SAMPLES, REPEATS = 100, 24, 8, 7


def run(say: Say) -> dict[str, Any]:
    """Returns tokens per second without modules, and the ratio to those with modules, for each number of rows."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    engines: dict[str, TransformersEngine] = {}
    for name in ("modules", "lean"):
        model = random_qwen3(448, **SIZES["0.85M"])
        model.stop_ids, model.lean = frozenset(), name == "lean"  # random weights would end by chance
        engines[name] = TransformersEngine({"p": Policy("p", model)})
    figures: dict[str, Any] = {}
    for rows in ROWS:
        asked = wave(rows)
        times: dict[str, list[float]] = {name: [] for name in engines}
        for repeat in range(REPEATS + 1):
            for name, engine in engines.items():
                began = time.perf_counter()
                asyncio.run(engine.generate(asked))
                if repeat:  # the first warms up
                    times[name].append(time.perf_counter() - began)
        figures[f"{rows} rows: tokens a second"] = round(rows * REPLY / median(times["lean"]))
        ratios = [modules / lean for modules, lean in zip(times["modules"], times["lean"], strict=True)]
        figures[f"{rows} rows: times as many as with modules"] = round(median(ratios), 2)
        say(f"{rows} rows: {median(ratios):.2f} times as many tokens a second as with modules")
    return figures


def wave(rows: int, length: int = PROMPT, reply: int = REPLY, samples: int = SAMPLES) -> Sequence[Request]:
    """Returns requests for so many replies of `reply` tokens, `samples` to a prompt of `length` tokens."""
    chance, each = Random(0), min(rows, samples)
    prompts = [tuple(chance.randrange(3, 300) for _ in range(length)) for _ in range(rows // each)]
    seeds = [tuple(range(at * each, (at + 1) * each)) for at in range(len(prompts))]
    return [
        Request((f"{at:04}", 0, "", ""), "p", "", "", prompt, seeds[at], 1.0, 1.0, reply, ())
        for at, prompt in enumerate(prompts)
    ]
