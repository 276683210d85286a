"""The effect of `front = "eager"`: equal logs without rounding errors, and how often a token differs with them.

Writes docs/results/fronts.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from coterie.bench import Say
from coterie.bench.demo_small import CONFIG
from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import Unavailable
from coterie.kernel.engine import Engine, FrontName, Request
from coterie.kernel.episode import Sample
from coterie.kernel.group import Collected
from coterie.kernel.loops import drive
from coterie.kernel.play import Play, Sampling
from coterie.run.weights import TeamModels

PAGE = Path("docs/results/fronts.md")
TASKS, ROUNDS = 24, 5
LATENCY_S = 0.01
"""Mean time in seconds that the scripted engine needs to answer one question."""


class Slow(ScriptedEngine):
    """A scripted engine that answers each question after an exponential delay, like a server that batches by itself."""

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """Returns the script's replies after the longest delay of the requests."""
        waits = [Random(request.seeds[0]).expovariate(1 / LATENCY_S) for request in requests]
        await asyncio.sleep(max(waits))
        return await super().generate(requests)


def run(say: Say) -> dict[str, Any]:
    """Plays the same steps with both fronts, in turns, writes the page and returns its figures."""
    config = load_config(CONFIG, ["train.device=cpu"])
    comparisons = {"scripted": _compared(config, Slow(_script), say)}
    for dtype in ("float32", "bfloat16"):
        models = TeamModels(load_config(CONFIG, ["train.device=cpu", f"train.dtype={dtype}"]))
        with models.engine as engine:
            comparisons[dtype] = _compared(config, engine, say)
    PAGE.write_text("\n".join(page(comparisons)))
    return {f"{engine}_{name}": value for engine, figures in comparisons.items() for name, value in figures.items()}


def page(comparisons: dict[str, dict[str, Any]]) -> list[str]:
    """Returns the lines of the results page."""

    def row(title: str, figures: dict[str, Any]) -> str:
        logs = "equal, event for event" if figures["logs_equal"] else "log-probabilities differ by rounding"
        replies = f"{figures['replies_that_differ']} of {figures['replies']:,} ({figures['tokens']:,} tokens)"
        return f"| {title} | {logs} | {replies} | {figures['waves_to_eager_time']} |"

    return [
        "# Results: fronts",
        "",
        "A front decides when a question leaves for the engine: `waves` sends all waiting questions together, "
        f"`eager` sends each at once. Written by `python -m benchmarks fronts`, which plays {ROUNDS} rollouts of "
        f"{TASKS} tasks of plan_path, with 8 replies per decision, with the two fronts alternately in one run.",
        "",
        "| engine | logs of `eager` compared with `waves` | different replies to equal prompts with equal seeds | "
        "time of `waves` / time of `eager` |",
        "|---|---|---|---|",
        row(f"scripted, exponential delay of {1000 * LATENCY_S:g} ms in the mean", comparisons["scripted"]),
        row("embedded, the shipped starter, float32", comparisons["float32"]),
        row("embedded, the shipped starter, bfloat16", comparisons["bfloat16"]),
        "",
        "Each sample has a seed of its own, so the order of questions does not change it. Rounding can: a matrix "
        "product over a different set of rows may differ in its last bit, and if a draw lies that close to the border "
        "between two tokens, the other token is sampled. `waves` computes the same rows together in every run, so a "
        "resume is exact; `eager` does not. The embedded engine does not batch questions by itself, so `eager` only "
        "makes it slower; `eager` is for servers.",
        "",
    ]


def _compared(config: Config, engine: Engine, say: Say) -> dict[str, Any]:
    """Plays the same steps with both fronts, and returns how logs, replies and times differ with an engine."""
    fronts: tuple[FrontName, ...] = ("waves", "eager")
    times: dict[FrontName, list[float]] = {front: [] for front in fronts}
    equal, replies, differ, tokens = True, 0, 0, 0
    for step in range(ROUNDS):
        collected: dict[FrontName, list[Collected]] = {}
        for front in fronts if step % 2 else reversed(fronts):
            began = time.perf_counter()
            collected[front] = drive(_collected(config, front, engine, step))
            times[front].append(time.perf_counter() - began)
        equal &= _logs(collected["waves"]) == _logs(collected["eager"])
        drawn, other = _drawn(collected["waves"]), _drawn(collected["eager"])
        shared = drawn.keys() & other.keys()
        replies += len(shared)
        differ += sum(drawn[key] != other[key] for key in shared)
        tokens += sum(len(drawn[key]) for key in shared)
        say(f"{engine.title}: round {step + 1} of {ROUNDS}")
    return {
        "logs_equal": equal,
        "replies": replies,
        "replies_that_differ": differ,
        "tokens": tokens,
        "waves_to_eager_time": round(median(times["waves"]) / median(times["eager"]), 2),
    }


async def _collected(config: Config, front: FrontName, engine: Engine, step: int) -> list[Collected]:
    play = Play(
        config.environment, config.team, engine, seed=0, step=step, sampling=Sampling(max_tokens=32, front=front)
    )
    tasks = [play.task("train", index) for index in range(TASKS)]
    collected = await play.together(*(config.algorithm.collect(play, task) for task in tasks))
    return [outcome for outcome in collected if not isinstance(outcome, Unavailable)]


def _script(role: str, prompt: str, rng: Random) -> str:
    return " ".join(f"{rng.choice('abcdef')}{rng.randint(1, 6)}" for _ in range(rng.randint(1, 4)))


def _logs(collected: Sequence[Collected]) -> list[Any]:
    return [(task.groups, task.logs) for task in collected]


def _drawn(collected: Sequence[Collected]) -> dict[Any, tuple[int, ...]]:
    """Returns the tokens of every compared reply, by its role, prompt and seed."""
    return {
        (sample.role, sample.prompt_ids, sample.seed): sample.completion_ids
        for task in collected
        for group in task.groups
        for member in group.members
        for sample in member.samples
    }
