"""The comparisons of the three papers at our scale, with the controls they lack, at equal sampled tokens.

Writes docs/results/paper.md from docs/results/data/paper.jsonl, which holds the figures of every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.bench.rows import FIVE, Row, Table
from coterie.config.resolve import load_config

PAGE = Path("docs/results/paper.md")
VOTES = 5
TREE = {"name": "at_grpo", "horizon": "point", "commit": "random"}
"""AT-GRPO as the shipped configs have it."""
BUDGETS = {"plan_path": 300_000, "sokoban": 300_000, "sudoku": 600_000, "maths": 200_000}
"""Sampled tokens that each run of a task may train on."""
ALL_SEE: Mapping[str, Mapping[str, Any]] = {"plan_path": {"view": "full"}, "sokoban": {"view": "full"}}
"""As published, both roles see the whole board."""
PER_STEP = {"plan_path": 24, "sokoban": 24, "sudoku": 16, "maths": 20}
"""Tasks of a step of the team: 30 to 60 steps make a budget."""


def _row(
    task: str, title: str, algorithm: Mapping[str, Any], tasks: float, *, apart: bool, votes: int, **world: Any
) -> Row:
    """A row of a task's budget. tasks: of a step, relative to the team's. apart: each role has a policy of its own."""
    seen = {} if world.get("solo") else ALL_SEE.get(task, {})
    tables: dict[str, Any] = {
        "environment": {"name": task, **seen, **world},
        "algorithm": dict(algorithm),
        "optimizer": {"lr": 1e-3},
        "train": {
            "steps": 1000,
            "max_sampled_tokens": BUDGETS[task],
            "tasks_per_step": round(tasks * PER_STEP[task]),
            "eval_every": 10,
            "eval_tasks": 300,
            "mute_every": 0,
        },
    }
    roles = load_config(tables).environment.roles
    tables["team"] = {role: f"{role}s" if apart else "team" for role in roles}
    tables["policies"] = {policy: {} for policy in tables["team"].values()}
    return Row(title, tables, None, (), FIVE, votes)


def _team(task: str, tree: Mapping[str, Any]) -> dict[str, Row]:
    return {
        f"{task}_naive": _row(task, "team, naive GRPO", {"name": "mas_grpo"}, 1, apart=True, votes=1),
        f"{task}_shared": _row(task, "team, AT-GRPO, one shared policy", tree, 1, apart=False, votes=1),
        f"{task}_roles": _row(task, "team, AT-GRPO, a policy per role", tree, 1, apart=True, votes=1),
    }


def _game(task: str) -> dict[str, Row]:
    grpo = {"name": "grpo"}
    return {
        f"{task}_once": _row(task, "one agent, one turn, GRPO", grpo, 3, apart=False, votes=1, solo=True, max_turns=1),
        f"{task}_turns": _row(task, "one agent, four turns, GRPO", grpo, 2, apart=False, votes=1, solo=True),
        f"{task}_solo": _row(task, "one agent, four turns, AT-GRPO", TREE, 2, apart=False, votes=VOTES, solo=True),
        **_team(task, TREE),
    }


MATHS = {
    "maths_once": _row("maths", "one agent without a tool, GRPO", {"name": "grpo"}, 2, apart=False, votes=VOTES,
                       tools=0, max_turns=1),
    "maths_solo": _row("maths", "one agent with the calculator, GRPO", {"name": "grpo"}, 3, apart=False, votes=VOTES,
                       reasoners=0, max_turns=1),
    **_team("maths", {"name": "at_grpo", "horizon": "point"}),
}  # fmt: skip
TABLE = Table(
    Path("runs/bench-paper"),
    "coterie.bench.paper",
    {**_game("plan_path"), **_game("sokoban"), **_game("sudoku"), **MATHS},
    Path("docs/results/data/paper.jsonl"),
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return ["# Results: the papers' comparisons", "", *TABLE.lines(), ""]
