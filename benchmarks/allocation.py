"""Gradient quality per reply: ways to allocate a budget of replies to the queries of `assistants`.

Two halves of a batch are played, and their gradients are compared for each policy. The cosine of two independent
estimates measures the share of signal in one estimate. Every allocation gets about the same number of replies per
half, so that the cosines can be compared. One process plays one pair of halves of every allocation in turn, so that
times can be compared too. All allocations start from the starter; two of them also start from a team that `coterie
bench joyagents` has trained. Writes docs/results/allocation.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import torch

from benchmarks.intervals import over_seeds
from benchmarks.joyagents import CONFIG, TABLE
from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.errors import Unavailable
from coterie.kernel.play import Play
from coterie.kernel.team import count_tasks, route
from coterie.learning.batch import rows_of
from coterie.learning.learner import LocalLearner
from coterie.run.weights import TeamModels
from coterie.seeds import seed_of

FOLDER, PAGE = Path("runs/bench-allocation"), Path("docs/results/allocation.md")
REPLIES = 2000
"""Number of replies, about, that one half of a batch gets."""
PAIRS, PROBES = 10, 4
"""Number of pairs of halves, and of queries that are played to learn how many replies a query costs."""
DEFAULT = "1 base, all nodes, 4 replies"
"""The way in which `joyagents` allocates replies by default."""
LAST = 30
"""Step of the checkpoint at which the trained team is measured."""
SUMS: Mapping[str, Any] = {"advantage": "leave_one_out"}
NODES: Mapping[str, Any] = {"name": "joyagents", **SUMS}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "2 bases, 2 nodes a role, 8 replies": {**NODES, "bases": 2, "nodes": "per_agent", "num_generations": 8},
    "1 base, 2 nodes a role, 4 replies": {**NODES, "bases": 1, "nodes": "per_agent", "num_generations": 4},
    "1 base, all nodes, 8 replies": {**NODES, "bases": 1, "nodes": "all", "num_generations": 8},
    "1 base, all nodes, 4 replies": {**NODES, "bases": 1, "nodes": "all", "num_generations": 4},
    "1 base, all nodes, 3 replies": {**NODES, "bases": 1, "nodes": "all", "num_generations": 3},
    "1 base, all nodes, 2 replies": {**NODES, "bases": 1, "nodes": "all", "num_generations": 2},
    "1 base, all nodes, 4 replies played twice": {
        **NODES, "bases": 1, "nodes": "all", "num_generations": 4, "continuations": 2},
    "1 base, all nodes, 4 replies, standardized": {
        **NODES, "bases": 1, "nodes": "all", "num_generations": 4, "advantage": "standardize"},
    "mas_grpo, 28 episodes": {"name": "mas_grpo", "num_generations": 28},
    "mas_grpo, 8 episodes": {"name": "mas_grpo", "num_generations": 8},
    "drmas, 8 episodes": {"name": "drmas", "num_generations": 8},
}  # fmt: skip
STARTS: Mapping[str, Sequence[str]] = {
    "starter": tuple(WAYS),
    "trained": ("1 base, all nodes, 4 replies", "mas_grpo, 8 episodes"),
}
"""Ways to allocate replies that are measured, by the team that they start from."""


def run(say: Say) -> dict[str, Any]:
    """Measures the missing pairs, writes the page, and returns each way's mean cosine over all policies."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    TABLE.make(say, ["joyagents"])
    jobs = [(start, pair) for start in STARTS for pair in range(PAIRS) if not _file(start, pair).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start, pair in pool.map(_subprocess, jobs):
            say(f"{start}, pair {pair}: done")
    PAGE.write_text("\n".join(page()))
    return {name: round(fmean(fmean(values) for values in _cosines("starter", name).values()), 3) for name in WAYS}


def measure(start: str, pair: int) -> None:
    """Plays one pair of halves of every way from a start, in this process, and saves the figures."""
    measured: dict[str, Any] = {}
    tables = load_config(CONFIG).tables() | {"loss": {"denominator": "tasks"}}
    if start == "trained":
        policies = TABLE.runs("joyagents")[0].checkpoints.path(LAST) / "policies"
        tables["policies"] = {name: {"model": str(policies / name)} for name in tables["policies"]}
    for name in STARTS[start]:
        models = TeamModels(load_config({**tables, "algorithm": dict(WAYS[name])}))
        models.engine.open()
        _, probed, _ = _half(models, range(PROBES), 0)
        tasks = max(2, round(REPLIES * PROBES / probed))
        first = PROBES + 2 * pair * tasks
        halves = [_half(models, range(first + half * tasks, first + (half + 1) * tasks), pair + 1) for half in (0, 1)]
        cosines: dict[str, float] = {}
        for policy in models.policies:
            left, right = (gradients[policy] for gradients, _, _ in halves)
            cosines[policy] = float(torch.dot(left, right) / (left.norm() * right.norm()).clamp(min=1e-30))
        models.engine.shut()
        measured[name] = {
            "tasks": tasks,
            "cosines": cosines,
            "replies": fmean(count for _, count, _ in halves),
            "seconds": fmean(took for *_, took in halves),
        }
    _file(start, pair).write_text(json.dumps(measured, indent=1))


def _half(models: TeamModels, tasks: range, step: int) -> tuple[dict[str, torch.Tensor], int, float]:
    """Returns the gradient of every policy from some tasks, with the replies and seconds it took."""
    config, began = models.config, time.perf_counter()
    sampling = models.config.sampling(config.train.temperature)
    play = Play(config.environment, config.team, models.engine, seed=1, step=step, sampling=sampling)

    async def collect() -> list[Any]:
        chosen = [config.environment.task("train", index) for index in tasks]
        return await play.together(*(config.algorithm.collect(play, task) for task in chosen))

    collected = [outcome for outcome in asyncio.run(collect()) if not isinstance(outcome, Unavailable)]
    played = [group for outcome in collected for group in outcome.groups]
    groups = config.algorithm.select(played, Random(seed_of("select", step)))
    credit, _ = config.algorithm.credit(groups, {})
    gradients: dict[str, torch.Tensor] = {}
    for policy, graded in route(config.team, groups, credit, tasks=count_tasks(played)).items():
        net = models.policies[policy].model.net
        net.zero_grad(set_to_none=False)
        assert isinstance(models.learner, LocalLearner)
        models.learner.accumulate(policy, rows_of(graded, config.loss))
        gradients[policy] = torch.cat(
            [torch.zeros_like(weight).flatten() if weight.grad is None else weight.grad.flatten()
             for weight in net.parameters()]
        ).clone()  # fmt: skip
        net.zero_grad(set_to_none=True)
    return gradients, play.budget.replies.total(), time.perf_counter() - began


def page() -> list[str]:
    """Returns the lines of the results page, from the pairs that have been measured."""
    return [
        "# Results: gradient quality per sampled reply",
        "",
        "Written by `python -m benchmarks allocation`. "
        "The team is that of `assistants` at its starter, with one policy per "
        "role. A row is one way to spend replies. A *base* is a played episode of a query, a *node* is one of its "
        "decisions, and *replies* are the alternatives that are compared at a node. For each row, two halves of a "
        f"batch are played on different queries, each with as many queries as need about {REPLIES} replies (column "
        "`queries`). The columns of the policies give the cosine c between the gradients of the two halves: mean "
        f"over {PAIRS} pairs with a 95 % t-interval. 1 would mean that a gradient has no noise. Signal to noise is c "
        "/ (1 - c), averaged over policies; it is given per 1,000 replies and per ten seconds of one core, with all "
        f"ways measured side by side. The column *default minus this* compares with the default, `{DEFAULT}`, per "
        "1,000 replies, with a 95 % jackknife interval over pairs; an interval that contains 0 means no measurable "
        "difference. The rows with bases are `joyagents`. All of them but the standardized one use leave-one-out "
        "advantages and sums over tokens; equal replies of a node are valued once. `mas_grpo` and `drmas` use their "
        "default, standardized advantages.",
        "",
        *_table("starter"),
        "",
        "## With a trained team",
        "",
        "The same measurement with the seed-0 team that `python -m benchmarks joyagents` trained, at step "
        f"{LAST}. The remaining errors are rare, so a batch of this size carries little signal about them: neither way "
        "has much signal, and neither has more than the other. Steps this late need more queries, whichever way "
        "samples them.",
        "",
        *_table("trained"),
        "",
    ]


def _table(start: str) -> list[str]:
    policies = list(_cosines(start, STARTS[start][0]))
    lines = [
        f"| | queries | {' | '.join(policies)} | mean cosine | signal to noise per 1,000 replies | "
        "default minus this | signal to noise per 10 seconds |",
        "|---|---|" + "---|" * (len(policies) + 4),
    ]
    for name in STARTS[start]:
        cosines, measured = _cosines(start, name), [row[name] for row in _found(start)]
        cells = [_interval(cosines[policy]) for policy in policies]
        cells += [
            f"{fmean(fmean(values) for values in cosines.values()):.2f}",
            f"{1000 * _ratio(measured) / fmean(row['replies'] for row in measured):.3f}",
            "" if name == DEFAULT else _interval(_apart([row[DEFAULT] for row in _found(start)], measured)),
            f"{10 * _ratio(measured) / median(row['seconds'] for row in measured):.3f}",
        ]
        lines.append(f"| {name} | {measured[0]['tasks']} | {' | '.join(cells)} |")
    return lines


def _ratio(measured: Sequence[dict[str, Any]]) -> float:
    """Returns the ratio of signal to noise, a mean over policies. Args: measured: one way's pairs."""
    return fmean(_signal_to_noise([row["cosines"][policy] for row in measured]) for policy in measured[0]["cosines"])


def _apart(default: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> list[float]:
    """Returns jackknife pseudo-values, one per pair, of the default's less the other's ratio per 1,000 replies."""

    def difference(left_out: int | None = None) -> float:
        kept = [at for at in range(len(default)) if at != left_out]
        left, right = [default[at] for at in kept], [other[at] for at in kept]
        return 1000 * (
            _ratio(left) / fmean(row["replies"] for row in left)
            - _ratio(right) / fmean(row["replies"] for row in right)
        )

    pairs = len(default)
    return [pairs * difference() - (pairs - 1) * difference(pair) for pair in range(pairs)]


def _signal_to_noise(cosines: Sequence[float]) -> float:
    mean = max(0.0, fmean(cosines))
    return mean / max(1e-6, 1 - mean)


def _interval(values: Sequence[float]) -> str:
    mean, low, high = over_seeds(values)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _file(start: str, pair: int) -> Path:
    return FOLDER / f"{start}-{pair}.json"


def _found(start: str) -> list[dict[str, Any]]:
    """Returns the figures of every pair that has been measured from a start."""
    return [json.loads(_file(start, pair).read_text()) for pair in range(PAIRS) if _file(start, pair).exists()]


def _cosines(start: str, name: str) -> dict[str, list[float]]:
    """Returns a way's cosines by policy, one per pair."""
    cosines = [row[name]["cosines"] for row in _found(start)]
    return {policy: [by_policy[policy] for by_policy in cosines] for policy in cosines[0]}


def _subprocess(job: tuple[str, int]) -> tuple[str, int]:
    code = "import sys; from benchmarks.allocation import measure; measure(sys.argv[1], int(sys.argv[2]))"
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, job)]
    subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
    return job
