"""Changes as training goes on: success that is lost again, turns, and each role's share of the gradient."""

from __future__ import annotations

import math
from statistics import fmean

from benchmarks.ablation_rows import LATE, TABLE
from benchmarks.paper_rows import BUDGETS, GAMES
from benchmarks.paper_rows import TABLE as PAPER


def lines() -> list[str]:
    """Returns the lines of three sections of the page of ablations."""
    return [*_late(), *_turns(), *_captured()]


def _late() -> list[str]:
    """Returns the section on success that is lost again if training goes on at the same learning rate."""
    lines = [
        "## One policy or one per role, if training goes on",
        "",
        "at_grpo with three times the budget and a learning rate that does not fall: success on 300 validation tasks, "
        "a mean over seeds.",
        "",
        "| | at the start | highest | after the last step | by seed, last less highest |",
        "|---|---|---|---|---|",
    ]
    for task in LATE:
        for row, title in ((f"{task}_shared_late", "one policy"), (f"{task}_roles_late", "a policy per role")):
            if found := TABLE.found(row):
                curves = [[success for _, _, success in figures["curve"]] for figures in found]
                cells = (
                    f"{fmean(curve[0] for curve in curves):.3f}",
                    f"{fmean(max(curve) for curve in curves):.3f}",
                    f"**{fmean(curve[-1] for curve in curves):.3f}**",
                    ", ".join(f"{lost:+.3f}" for lost in kept(row)),
                )
                lines.append(f"| {task}: {title} | {' | '.join(cells)} |")
    return [*lines, ""]


def kept(row: str) -> list[float]:
    """Returns, for each run, the last validation success less the highest one: how much was lost again."""
    curves = [[success for _, _, success in figures["curve"]] for figures in TABLE.found(row)]
    return [curve[-1] - max(curve) for curve in curves]


def _turns() -> list[str]:
    """Returns the section on turns on validation tasks as training goes on."""
    lines = [
        "## Turns as training goes on",
        "",
        "Mean turns of an episode on validation tasks, and in brackets all turns per solved task; at_grpo with a "
        "policy per role, a mean over seeds. An unsolved task counts with all its turns.",
        "",
        "| | at the start | after a third | after two thirds | at the end |",
        "|---|---|---|---|---|",
    ]
    for task in GAMES:
        curves = [
            [
                (turns, turns / success if success else math.inf)
                for turns, (_, _, success) in zip(run["turns_curve"], run["curve"], strict=True)
            ]
            for run in PAPER.found(f"{task}_roles")
        ]
        if curves:
            thirds = [[curve[(len(curve) - 1) * third // 3] for curve in curves] for third in range(4)]
            cells = ["{:.2f} ({:.2f})".format(*map(fmean, zip(*points, strict=True))) for points in thirds]
            lines.append(f"| {task} | {' | '.join(cells)} |")
    return [*lines, ""]


def _captured() -> list[str]:
    """Returns the section on each role's share of the gradient that a policy follows, as training goes on."""
    lines = [
        "## Who captures a shared policy",
        "",
        "Each role's share of the gradient, in the first, second and last third of the steps, a mean over seeds. If "
        "one policy serves all roles, a role with a larger share moves it more.",
        "",
        "| | role | one policy for all | a policy per role |",
        "|---|---|---|---|",
    ]
    for task in BUDGETS:
        shared, apart = ([figures["shares"] for figures in PAPER.found(f"{task}_{row}") if "shares" in figures]
                         for row in ("shared", "roles"))  # fmt: skip
        for role in PAPER.rows[f"{task}_shared"].resolved(0).team.roles if shared and apart else ():
            cells = [" to ".join(f"{fmean(run[role][third] for run in runs):.2f}" for third in range(3))
                     for runs in (shared, apart)]  # fmt: skip
            lines.append(f"| {task} | {role} | {' | '.join(cells)} |")
    return [*lines, ""]
