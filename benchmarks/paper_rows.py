"""The trainings of `python -m benchmarks paper`, at equal sampled tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.rows import FIVE, Row, Table, with_ten
from coterie.config.resolve import load_config

VOTES = 5
TREE = {"name": "at_grpo", "horizon": "point", "commit": "random"}
"""AT-GRPO as the shipped configs have it in games."""
PUBLISHED_TREE = {"name": "at_grpo", "horizon": "turn", "commit": "greedy"}
"""AT-GRPO as published."""
GAMES = ("plan_path", "sokoban", "sudoku")
BUDGETS = {"plan_path": 300_000, "sokoban": 300_000, "sudoku": 600_000, "maths": 200_000}
"""Number of sampled tokens that each run of a task may train on."""
ALL_SEE: Mapping[str, Mapping[str, Any]] = {"plan_path": {"view": "full"}, "sokoban": {"view": "full"}}
"""Settings that let both roles see the whole board, as published."""
PER_STEP = {"plan_path": 24, "sokoban": 24, "sudoku": 16, "maths": 20}
"""Number of tasks of a step of the team: 30 to 60 steps make a budget."""


def budgeted(
    task: str, title: str, algorithm: Mapping[str, Any], tasks: float, *, apart: bool, votes: int, **world: Any
) -> Row:
    """Returns a row of a task's budget. tasks: of a step, relative to the team's. apart: a policy for each role."""
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
        f"{task}_naive": budgeted(task, "team, naive GRPO", {"name": "mas_grpo"}, 1, apart=True, votes=1),
        f"{task}_shared": budgeted(task, "team, AT-GRPO, one shared policy", tree, 1, apart=False, votes=1),
        f"{task}_roles": budgeted(task, "team, AT-GRPO, a policy per role", tree, 1, apart=True, votes=1),
    }


def _game(task: str) -> dict[str, Row]:
    grpo = {"name": "grpo"}
    return {
        f"{task}_once": budgeted(
            task, "one agent, one turn, GRPO", grpo, 3, apart=False, votes=1, solo=True, max_turns=1
        ),
        f"{task}_turns": budgeted(task, "one agent, four turns, GRPO", grpo, 2, apart=False, votes=1, solo=True),
        f"{task}_solo": budgeted(task, "one agent, four turns, AT-GRPO", TREE, 2, apart=False, votes=VOTES, solo=True),
        **_team(task, TREE),
        f"{task}_published": budgeted(
            task, "team, AT-GRPO as published, a policy per role", PUBLISHED_TREE, 1, apart=True, votes=1
        ),
    }


GRPO = {"name": "grpo"}
MATHS = {
    "maths_once": budgeted(
        "maths", "one agent without a tool, GRPO", GRPO, 2, apart=False, votes=VOTES, tools=0, max_turns=1
    ),
    "maths_solo": budgeted(
        "maths", "one agent with the calculator, GRPO", GRPO, 3, apart=False, votes=VOTES, reasoners=0, max_turns=1
    ),
    **_team("maths", {"name": "at_grpo", "horizon": "point"}),
}


def _budget(tokens: int, *more: str) -> tuple[str, ...]:
    return ("train.steps=1000", f"train.max_sampled_tokens={tokens}", "train.eval_every=10", *more)


CODE, WRITING, CALLS = 60_000, 250_000, 150_000
"""Number of sampled tokens that each run of code_pair, writing and assistants may train on."""
WHOLE = {"name": "mas_grpo", "num_generations": 8}
"""GRPO over episodes; MAGRPO would play 64 episodes of a task where a role sees what was written."""
PAIR, ALONE = "configs/code_pair.toml", "configs/code_pair_solo.toml"
SHORT = ("train.mute_every=0", "train.eval_tasks=200")
# A discussion is twice as long, so half as many tasks make a step, and it has as many steps as the others.
TOGETHER = {
    "code_solo": Row("one agent, GRPO", ALONE, None, _budget(CODE, "train.mute_every=0"), FIVE, VOTES),
    "code_turns": Row("one agent, two turns with feedback, GRPO", ALONE, None,
                      _budget(CODE, "train.mute_every=0", "environment.max_turns=2"), FIVE),
    "code_magrpo": Row("two at once, MAGRPO", PAIR, None, _budget(CODE), FIVE),
    "code_pipeline": Row("pipeline, GRPO over episodes", PAIR, WHOLE,
                         _budget(CODE, "environment.protocol=pipeline"), FIVE),
    "code_discussion": Row("discussion, GRPO over episodes", PAIR, WHOLE,
                           _budget(CODE, "environment.protocol=discussion", "train.tasks_per_step=8"), FIVE),
    "writing_alone": Row("one agent, GRPO", "configs/writing_alone.toml", None, _budget(WRITING, *SHORT), FIVE),
    "writing_magrpo": Row("two at once, MAGRPO", "configs/writing.toml", None, _budget(WRITING, *SHORT), FIVE),
    "writing_pipeline": Row("pipeline, GRPO over episodes", "configs/writing.toml", WHOLE,
                            _budget(WRITING, *SHORT, "environment.protocol=pipeline"), FIVE),
    "writing_discussion": Row("discussion, GRPO over episodes", "configs/writing.toml", WHOLE,
                              _budget(WRITING, *SHORT, "environment.protocol=discussion",
                                      "train.tasks_per_step=12"), FIVE),
}  # fmt: skip
MASTER, LONE = "configs/assistants.toml", "configs/assistants_solo.toml"
SUMMED = "loss.denominator=tasks"
"""Setting that gives the methods beside joyagents and c3 the loss of these."""
MATCHED = ("train.tasks_per_step=40", SUMMED)
"""Settings that sample as many tokens a step as 64 queries of joyagents."""
CALLERS = {
    "assistants_joyagents": Row("master and four, JoyAgents (repaired)", MASTER, None, _budget(CALLS, *SHORT), FIVE),
    "assistants_c3": Row("master and four, C3", MASTER, {"name": "c3"}, _budget(CALLS, *SHORT), FIVE),
    "assistants_drmas": Row("master and four, Dr. MAS", MASTER, {"name": "drmas", "num_generations": 8},
                            _budget(CALLS, *SHORT, *MATCHED), FIVE),
    "assistants_mas_grpo": Row("master and four, GRPO over episodes", MASTER, WHOLE,
                               _budget(CALLS, *SHORT, *MATCHED), FIVE),
    "assistants_solo": Row("one agent with every tool, GRPO", LONE, None, _budget(CALLS, *SHORT), FIVE, VOTES),
}  # fmt: skip
ROWS = {**_game("plan_path"), **_game("sokoban"), **_game("sudoku"), **MATHS, **TOGETHER, **CALLERS}
CLOSE = (
    "plan_path_once", "plan_path_naive", "plan_path_roles", "plan_path_published", "sokoban_shared", "sokoban_roles",
    "sudoku_once", "sudoku_naive", "sudoku_shared", "sudoku_roles", "sudoku_published", "maths_naive", "maths_shared",
    "maths_roles", "writing_alone", "writing_magrpo", "writing_pipeline", "assistants_c3", "assistants_drmas",
    "assistants_mas_grpo",
)  # fmt: skip
"""Rows that get ten seeds."""
TABLE = Table(
    Path("runs/bench-paper"),
    "benchmarks.paper_rows",
    with_ten(ROWS, CLOSE),
    Path("docs/results/data/paper.jsonl"),
)
