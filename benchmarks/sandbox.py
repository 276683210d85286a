"""Sandbox executions per second, and whether many executions leave processes or files behind."""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from coterie.bench import Say
from coterie_worlds.sandbox import Box
from coterie_worlds.sandbox.worker import SandboxPool

MANY = 20_000
ROUND = 200
PROGRAM = "def f(x):\n    return sorted(x)[::-1]"


def run(say: Say) -> dict[str, Any]:
    """Runs 20,000 small programs, each in a sandbox of its own, as many at once as there are cores twice over."""
    pool = SandboxPool(Box())
    rates: list[float] = []
    before = _left_over()
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as threads:
        for start in range(0, MANY, ROUND):
            began = time.perf_counter()
            assert list(threads.map(lambda number: _one(pool, number), range(start, start + ROUND))) == [True] * ROUND
            rates.append(ROUND / (time.perf_counter() - began))
            if start % (10 * ROUND) == 0:
                say(f"{start + ROUND} of {MANY}: {rates[-1]:.0f} a second")
    after = _left_over()
    pool.close()
    return {
        "programs": MANY,
        "median_per_s": round(median(rates), 1),
        "slowest_round_per_s": round(min(rates), 1),
        "descriptors_left": after[0] - before[0],
        "processes_left": after[1] - before[1],
    }


def _one(pool: SandboxPool, number: int) -> bool:
    with pool.worker() as worker:
        worker.load(PROGRAM)
        return worker.call(name="f", args=[[number, 1, 2]], kwargs={})["value"] == sorted([number, 1, 2])[::-1]


def _left_over() -> tuple[int, int]:
    """Returns the open descriptors of this process and the processes that come from it, once the pool is full again."""
    time.sleep(2)
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the worker has ended since
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= new
    return len(list(Path("/proc/self/fd").iterdir())), len(ours) - 1
