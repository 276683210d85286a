"""The slowdown by another process on one of two cores: with one thread, all threads, and an adaptive number.

It times parts of an update and a wave of a model with 0.85 million parameters, in turns, for three seconds each.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from benchmarks.decode import wave
from benchmarks.models import random_qwen3
from benchmarks.update import SIZES, learner_of, rows_of_groups
from coterie.bench import Say
from coterie.engines.transformers import TransformersEngine
from coterie.learning.policy import Policy
from coterie.models.threads import Threads

SECONDS, ROUNDS = 3.0, 3
LOOP = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def run(say: Say) -> dict[str, Any]:
    """Returns the speed of each way, as a share of what one thread reaches; idle and busy."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(1)  # so that learner and engine measure nothing themselves
    model = random_qwen3(448, **SIZES["0.85M"])
    model.stop_ids = frozenset()
    learner, engine = learner_of(model), TransformersEngine({"p": Policy("p", model)})
    torch.set_num_threads(2)
    rows, requests, threads = rows_of_groups(1, 8, 100, 50), wave(64), Threads([model.net])

    def all_of(count: int) -> Callable[[], None]:
        return lambda: torch.set_num_threads(count)

    ways: dict[str, Callable[[], None]] = {"one": all_of(1), "all": all_of(2), "measured": threads.settle}
    figures: dict[str, Any] = {}
    for what in ("idle", "busy"):
        other = subprocess.Popen([sys.executable, "-c", LOOP, str(cores[0])]) if what == "busy" else None
        rates: dict[str, list[float]] = {way: [] for way in ways}
        try:
            for _ in range(ROUNDS):
                for way, settle in ways.items():
                    units, began = 0, time.perf_counter()
                    while time.perf_counter() - began < SECONDS:
                        settle()
                        model.net.zero_grad(set_to_none=True)
                        learner.accumulate("p", rows)
                        settle()
                        asyncio.run(engine.generate(requests))
                        units += 1
                    rates[way].append(units / (time.perf_counter() - began))
        finally:
            if other:
                other.kill()
                other.wait()
        for way in ("all", "measured"):
            figures[f"{what}: {way} against one thread"] = round(median(rates[way]) / median(rates["one"]), 2)
        say(f"{what}: {', '.join(f'{way} {median(each):.1f}' for way, each in rates.items())} units a second")
    return figures
