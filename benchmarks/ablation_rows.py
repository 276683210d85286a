"""The trainings of `python -m benchmarks ablations`, at equal sampled tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.paper_rows import BUDGETS, CALLS, MASTER, TREE, budgeted
from benchmarks.paper_rows import TABLE as PAPER
from benchmarks.rows import FIVE, Row, Table, with_ten

TURN = {"name": "at_grpo", "horizon": "turn", "commit": "random"}
GROUPED = ("plan_path", "sokoban")
"""Tasks on which rows differ only in the replies that are compared with each other."""
LATE = ("plan_path", "maths")
"""Tasks on which some rows are trained three times as long."""


def _team(task: str, title: str, algorithm: Mapping[str, Any], tasks: float = 1, **world: Any) -> Row:
    return budgeted(task, title, algorithm, tasks, apart=True, votes=1, **world)


def _grouping() -> dict[str, Row]:
    return {
        f"{task}_by_role_turn": _team(task, "by agent and turn", {"name": "mas_grpo", "by": "role_turn"})
        for task in GROUPED
    }


def _sampler() -> dict[str, Row]:
    return {
        "greedy": _team("plan_path", "greedy commit", TREE | {"commit": "greedy"}),
        "turn": _team("plan_path", "horizon turn", TURN),
        "width_4": _team("plan_path", "4 replies per point", TREE | {"num_generations": 4}, 2),
        "width_16": _team("plan_path", "16 replies per point", TREE | {"num_generations": 16}, 0.5),
    }


def _outcomes() -> dict[str, Row]:
    return {
        f"{task}_{name}": _team(task, title, TURN, dense=dense)
        for task in ("plan_path", "sokoban", "sudoku")
        for name, title, dense in (("dense", "local rewards", True), ("outcome", "outcome only", False))
        if (task, name) != ("plan_path", "dense")  # which is the row `turn`
    }


def _alone() -> dict[str, Row]:
    """Returns rows that train one role alone, and the team trained together where only the proposer sees the map."""
    together = {view: _team("plan_path", "trained together", TREE, view=view) for view in ("full", "split")}
    alone = {
        f"{'split_' if view == 'split' else ''}alone_{role}": replace(
            row, title=f"only the {role} learns", overrides=(f"policies.{other}s.kind=frozen",)
        )
        for view, row in together.items()
        for role, other in (("proposer", "planner"), ("planner", "proposer"))
    }
    return alone | {"split_roles": together["split"]}


def _sizes() -> dict[str, Row]:
    teams = {
        3: {"judge": True},
        5: {"judge": True, "reasoners": 2, "tools": 2},
        7: {"judge": True, "reasoners": 3, "tools": 3},
    }
    methods = {"grpo": {"name": "mas_grpo"}, "at_grpo": {"name": "at_grpo", "horizon": "point"}}
    attempts = {"name": "hierarchical_grpo", "attempts": ["reasoner"]}
    return {
        f"maths_{size}_{name}": _team("maths", f"{size} agents", method, 2 / size, **world)
        for size, world in teams.items()
        for name, method in methods.items()
    } | {"maths_7_hierarchical": _team("maths", "7 agents, attempts compared", attempts, 2 / 7, **teams[7])}


def _chosen() -> dict[str, Row]:
    budget = (f"train.max_sampled_tokens={CALLS}", "train.steps=1000", "train.eval_every=10", "train.eval_tasks=200")
    chosen = {"name": "joyagents", "selection": "raw_var", "among": "query", "floor": 0}
    return {f"joyagents_{top}": Row(f"K = {top}", MASTER, chosen | {"top_k": top}, budget, FIVE) for top in (1, 2, 5)}


def _late() -> dict[str, Row]:
    """Returns the papers' rows that go on: three times the budget, at a learning rate that does not fall."""
    return {
        f"{row}_late": replace(
            PAPER.rows[row],
            overrides=("optimizer.schedule=constant", f"train.max_sampled_tokens={3 * BUDGETS[task]}"),
            seeds=FIVE,
        )
        for task in LATE
        for row in (f"{task}_shared", f"{task}_roles")
    }


ROWS = {**_grouping(), **_sampler(), **_outcomes(), **_alone(), **_sizes(), **_chosen(), **_late()}
CLOSE = (
    "turn", "plan_path_outcome", "alone_proposer", "alone_planner", "split_roles", "split_alone_planner",
    "maths_3_grpo", "maths_3_at_grpo", "maths_5_grpo", "maths_5_at_grpo", "joyagents_1", "joyagents_5",
)  # fmt: skip
"""Rows that get ten seeds."""
TABLE = Table(
    Path("runs/bench-ablations"),
    "benchmarks.ablation_rows",
    with_ten(ROWS, CLOSE),
    Path("docs/results/data/ablations.jsonl"),
)
