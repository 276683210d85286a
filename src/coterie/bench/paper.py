"""The comparisons of the three papers at our scale, with the controls they lack, at equal sampled tokens.

Writes docs/results/paper.md from docs/results/data/paper.jsonl, which holds the figures of every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.claims import Versus
from coterie.bench.contest import spread
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


def budgeted(
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
"""Sampled tokens that each run of code_pair, writing and assistants may train on."""
WHOLE = {"name": "mas_grpo", "num_generations": 8}
"""MAGRPO plays every joint reply to its end, which is 64 episodes of a task where a role sees what was written."""
PAIR, ALONE = "configs/code_pair.toml", "configs/code_pair_solo.toml"
SHORT = ("train.mute_every=0", "train.eval_tasks=200")
TOGETHER = {
    "code_solo": Row("one agent, GRPO", ALONE, None, _budget(CODE, "train.mute_every=0"), FIVE, VOTES),
    "code_turns": Row("one agent, two turns with feedback, GRPO", ALONE, None,
                      _budget(CODE, "train.mute_every=0", "environment.max_turns=2"), FIVE),
    "code_magrpo": Row("two at once, MAGRPO", PAIR, None, _budget(CODE), FIVE),
    "code_pipeline": Row("pipeline, GRPO over episodes", PAIR, WHOLE,
                         _budget(CODE, "environment.protocol=pipeline"), FIVE),
    "code_discussion": Row("discussion, GRPO over episodes", PAIR, WHOLE,
                           _budget(CODE, "environment.protocol=discussion"), FIVE),
    "writing_alone": Row("one agent, GRPO", "configs/writing_alone.toml", None, _budget(WRITING, *SHORT), FIVE),
    "writing_magrpo": Row("two at once, MAGRPO", "configs/writing.toml", None, _budget(WRITING, *SHORT), FIVE),
    "writing_pipeline": Row("pipeline, GRPO over episodes", "configs/writing.toml", WHOLE,
                            _budget(WRITING, *SHORT, "environment.protocol=pipeline"), FIVE),
    "writing_discussion": Row("discussion, GRPO over episodes", "configs/writing.toml", WHOLE,
                              _budget(WRITING, *SHORT, "environment.protocol=discussion"), FIVE),
}  # fmt: skip
MASTER, LONE = "configs/assistants.toml", "configs/assistants_solo.toml"
SUMMED = "loss.denominator=tasks"
"""The loss of joyagents and c3, for the methods beside them."""
MATCHED = ("train.tasks_per_step=40", SUMMED)
"""As many tokens a step as 64 queries of joyagents."""
CALLERS = {
    "assistants_joyagents": Row("master and four, JoyAgents (repaired)", MASTER, None, _budget(CALLS, *SHORT), FIVE),
    "assistants_c3": Row("master and four, C3", MASTER, {"name": "c3"}, _budget(CALLS, *SHORT), FIVE),
    "assistants_drmas": Row("master and four, Dr. MAS", MASTER, {"name": "drmas", "num_generations": 8},
                            _budget(CALLS, *SHORT, *MATCHED), FIVE),
    "assistants_mas_grpo": Row("master and four, GRPO over episodes", MASTER, WHOLE,
                               _budget(CALLS, *SHORT, *MATCHED), FIVE),
    "assistants_solo": Row("one agent with every tool, GRPO", LONE, None, _budget(CALLS, *SHORT), FIVE, VOTES),
}  # fmt: skip
TABLE = Table(
    Path("runs/bench-paper"),
    "coterie.bench.paper",
    {**_game("plan_path"), **_game("sokoban"), **_game("sudoku"), **MATHS, **TOGETHER, **CALLERS},
    Path("docs/results/data/paper.jsonl"),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """Which row is said to beat which, by whom."""

    text: str
    more: str
    less: str
    source: str


def _claims(task: str) -> list[Claim]:
    """What AT-GRPO's paper and its critics say of a task."""
    once, best = ("once", "turns") if task != "maths" else ("once", "solo")
    paper, critics = "AT-GRPO, arXiv:2510.11062", "critics, arXiv:2604.02460"
    return [
        Claim("a team beats one agent in one turn", f"{task}_roles", f"{task}_{once}", paper),
        Claim("a team trained with AT-GRPO beats one trained with naive GRPO", f"{task}_roles", f"{task}_naive", paper),
        Claim("a policy per role beats one shared policy", f"{task}_roles", f"{task}_shared", paper),
        Claim("one agent with the same turns or tools matches a team", f"{task}_{best}", f"{task}_roles", critics),
    ]


TOLD: Mapping[str, tuple[Claim, ...]] = {
    "code": (
        Claim("two at once beat one agent", "code_magrpo", "code_solo", "MAGRPO, arXiv:2508.04652"),
        Claim("two at once beat a pipeline", "code_magrpo", "code_pipeline", "MAGRPO"),
        Claim("two at once beat a discussion", "code_magrpo", "code_discussion", "MAGRPO"),
    ),
    "writing": (
        Claim("two at once match one agent", "writing_magrpo", "writing_alone", "MAGRPO's follow-up, arXiv:2601.21972"),
        Claim("two at once beat a pipeline", "writing_magrpo", "writing_pipeline", "the same"),
        Claim("two at once beat a discussion", "writing_magrpo", "writing_discussion", "the same"),
    ),
    "assistants": (
        Claim("node-wise training beats whole episodes", "assistants_joyagents", "assistants_mas_grpo",
              "JoyAgents-R1, arXiv:2506.19846"),
        Claim("a baseline per role beats one for the team", "assistants_drmas", "assistants_mas_grpo",
              "Dr. MAS, arXiv:2602.08847"),
        Claim("one agent with every tool matches the team", "assistants_solo", "assistants_joyagents", "critics"),
    ),
    **{task: tuple(_claims(task)) for task in BUDGETS},
}  # fmt: skip
TASKS = (*BUDGETS, "code", "writing", "assistants")
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "plan_path": {"before once": "5.0 / 12.0", "once": "11.0 / 47.0", "before roles": "10.0 / 71.0",
                  "shared": "96.0 / 93.0", "roles": "97.0 / 96.0"},
    "sokoban": {"before once": "0.0 / 9.0", "once": "3.0 / 14.0", "before roles": "0.0 / 16.0",
                "shared": "10.0 / 96.0", "roles": "11.5 / 98.0"},
    "sudoku": {"before once": "7.0 / 48.0", "once": "29.0 / 54.0", "before roles": "69.0 / 72.0",
               "shared": "99.0 / 99.5", "roles": "99.0 / 99.0"},
}  # fmt: skip
"""Of Qwen3-1.7B and 8B in percent, from the tables of arXiv:2510.11062 (other sizes and prompts of the same games)."""


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def successes(row: str) -> list[float]:
    """Success of a row, by seed."""
    return [figures["success"] for figures in TABLE.found(row)]


def verdicts() -> list[tuple[str, Claim, Versus]]:
    """Every claim with its task and our numbers, where all seeds of both rows are there."""
    return [
        (task, claim, Versus.between(successes(claim.more), successes(claim.less)))
        for task in TASKS
        for claim in TOLD[task]
        if len(successes(claim.more)) == len(successes(claim.less)) == len(FIVE)
    ]


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    found = verdicts()
    against = [f"{claim.text} ({task})" for task, claim, versus in found if versus.verdict == "does not hold"]
    done = [figures for name in TABLE.rows for figures in TABLE.found(name)]
    hours, beyond = TABLE.spent()
    lines = [
        "# Results: the papers' comparisons, with matched single agents",
        "",
        f"Does not hold here: {'; '.join(against)}." if against else "No published ordering is contradicted here.",
        "",
        "Written by `coterie bench paper`. ",
        f"{len(done)} runs, {hours:.1f} CPU hours. By their own counters all runs of a task sampled its budget and at "
        f"most {beyond:.1%} more, because a run ends with a whole step.",
        "",
        "| task | claim | source | difference in points, 95 % interval over seeds | verdict |",
        "|---|---|---|---|---|",
        *(f"| {task} | {claim.text} | {claim.source} | {versus} | {versus.verdict} |" for task, claim, versus in found),
        "",
    ]
    for task in TASKS:
        lines += [f"## {task}", "", *_table(task), ""]
    return lines


def _table(task: str) -> list[str]:
    """Players of a task: before and after training, at what cost, and what was published."""
    published = PUBLISHED.get(task, {})
    lines = [
        "| | before training | after | by seed | with 5 votes | sampled in training (M tokens) | tokens per test task |"
        + (" published, 1.7B / 8B |" if published else ""),
        "|---|---|---|---|---|---|---|" + ("---|" if published else ""),
    ]
    for name in TABLE.rows:
        kind = name.removeprefix(f"{task}_")
        if kind != name and (found := TABLE.found(name)):
            values = [figures["success"] for figures in found]
            voted = [figures["votes"] for figures in found if "votes" in figures]
            before = published.get(f"before {kind}", "")
            cells = [
                TABLE.rows[name].title,
                f"{found[0]['start_success']:.3f}",
                f"**{spread(values)}**",
                ", ".join(f"{value:.3f}" for value in values),
                spread(voted) if voted else "",
                f"{fmean(figures['sampled_tokens'] for figures in found) / 1e6:.2f}",
                f"{fmean(figures['tokens'] for figures in found):.0f}",
            ]
            cells += [f"{f'{before}, then ' if before else ''}{published.get(kind, '')}"] if published else []
            lines.append(f"| {' | '.join(cells)} |")
    return lines
