"""Benchmarks: tables of trainings, and speed and memory of this machine. They produce the figures in the docs.

    python -m benchmarks                    lists them
    python -m benchmarks real errand taboo  makes some rows of one

Each is a module with `run(say) -> figures`. `say` takes lines of progress; figures are a flat dict. One that trains has
a `TABLE` of rows, a run a seed. Alternatives are compared in one process, in turns. Times are medians, and the ratio of
the medians is reported.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from coterie.bench import Say, files_told
from coterie.errors import ConfigError, nearest

BENCHES = {
    "ablations": "what grouping, sampling, rewards, roles and their number are worth, at equal sampled tokens",
    "agents": "agents of three frameworks, unmodified, trained through the gateway, three seeds each",
    "allocation": "how much signal a way of spending replies buys, for assistants",
    "border": "20,000 programs that end and write in every way: none may be more than its own outcome",
    "busy": "what another process on one of two cores costs, with one thread, with two and by the thread rule",
    "claims": "a page for each published claim, from the figures that are there; trains nothing",
    "code": "the results of the programming tasks: teams, baselines, cooperation",
    "cooperation": "which pairs the cooperation reward of code_pair pays: honest ones and cheats",
    "decode": "tokens per second of the embedded engine, without and with a network's modules",
    "engines": "plan_path trained with the embedded engine, with vLLM and on a cluster, three seeds",
    "fronts": "what the eager front changes: logs, differing tokens, time",
    "gpu": "on a CUDA device: predicted and measured memory, tokens per second, updates, one step, learning",
    "growth": "how a step's time grows with roles, turns, replies, tasks, prompts and networks",
    "joyagents": "the results of assistants: node-wise training, its neighbours, one agent",
    "lora": "one adapter per role compared with one whole model per role, short trainings of plan_path",
    "map": "a map of when a team pays: what one role knows, how much an answer joins, how good one agent is",
    "memory": "peak memory of a demo step",
    "methods": "all methods on three tasks at equal sampled tokens, five seeds",
    "neighbours": "what a sandboxed program costs while another run's programs use all they can",
    "notes": "selection rules with and without notes, short trainings of assistants",
    "overlap": "what rollouts that run ahead gain in time and cost in success, five seeds",
    "paper": "the three papers' comparisons with matched single agents, at equal sampled tokens, five seeds",
    "peers": "trained replies per second compared with CoMLRL and TRL, on equal work",
    "plan": "memory that `coterie plan` predicts, compared with the measured memory",
    "plan_path": "the results table of plan_path: algorithms, seeds, intervals",
    "real": "teams of two adapters over a real model, and one agent in their place, five seeds",
    "roles": "what plan_path loses with a role muted, swapped or replaced by its initial policy",
    "rollout": "tokens per second compared with padded model.generate",
    "sandbox": "programs per second, each in its own sandbox, and what 20,000 of them leave behind",
    "scaling": "a simulated run on many GPUs, compared with measurements on two cores",
    "selection": "true worth of the groups that a selection rule chooses: by variance, by signal, at random",
    "smoke": "twenty steps; fails unless success rises",
    "startup": "seconds until `coterie --help` answers",
    "step": "share of a step spent outside engine and learner, and what a fork takes",
    "stream": "learning by memory alone, over a stream of questions in a changing environment",
    "tasks": "the results of sokoban, sudoku, maths and writing, five seeds each",
    "turns": "each method's update against the true gradient, where the policy decides how many turns there are",
    "update": "gradient and time of the shared-prefix update, compared with rows",
    "view": "time of the viewer's pages, for a run of 1,000 steps and 100,000 samples",
}


def run_bench(name: str, say: Say = lambda line: None, rows: Sequence[str] = ()) -> dict[str, Any]:
    """Runs one benchmark, or makes some rows of one that has a table of runs.

    Raises:
        ConfigError: there is none of that name, or no such row.
    """
    if name not in BENCHES:
        raise ConfigError(f"unknown benchmark '{name}'{nearest(name, BENCHES)}; there are {', '.join(BENCHES)}")
    module = importlib.import_module(f"{__name__}.{name}")
    with files_told():
        return _make(name, getattr(module, "TABLE", None), rows, say) if rows else module.run(say)


def _make(name: str, table: Any, rows: Sequence[str], say: Say) -> dict[str, Any]:
    """Makes the missing runs of some rows, and returns success by row and seed."""
    if table is None:
        raise ConfigError(f"benchmark '{name}' has no rows; leave out {', '.join(rows)}")
    for row in rows:
        if row not in table.rows:
            raise ConfigError(f"{name} has no row '{row}'{nearest(row, table.rows)}; there are {', '.join(table.rows)}")
    table.make(say, rows)
    return {f"{row}, seed {figures['seed']}": figures["success"] for row in rows for figures in table.found(row)}


BUSY_PERCENT = 15
"""Percentage of all cores' time above which other processes count as somebody's work."""


def alone() -> None:
    """Raises ConfigError if other processes use this machine, because timings would then be wrong."""
    if (taken := psutil.cpu_percent(interval=1.0)) > BUSY_PERCENT:
        raise ConfigError(f"other processes take {taken:.0f} % of this machine; times are measured on an idle one")


def processor() -> str:
    """Returns the name of this machine's processor, by its maker where the system tells it."""
    with suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().partition("model name")[2].split("\n")[0].split(":")[1].strip()
    return platform.processor() or platform.machine()
