"""The results of `assistants`: node-wise training against its neighbours, selection, and memory.

Writes docs/results/joyagents.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.api import load
from coterie.bench import Say
from coterie.bench.contest import Entrant, picture, spread, table_lines
from coterie.bench.rows import Row, Table, interval
from coterie.memory import Mode
from coterie.run.evaluate import Evaluation
from coterie.safe import plain

PAGE = Path("docs/results/joyagents.md")
PICTURE = Path("docs/results/joyagents_contest.svg")
CONFIG, SOLO = "configs/assistants.toml", "configs/assistants_solo.toml"
RULES = ("all_live", "random_live", "raw_var", "signal", "shrunk")
NOTES = {
    "off": (),
    "on": ("memory.mode=on", "memory.relevance=0.2"),
    "placebo": ("memory.mode=placebo", "memory.relevance=0.2"),
}
WHOLE = {"denominator": "tasks", "num_generations": 8}
"""Whole episodes: the number of a task that bought the best gradient."""
MATCHED = ("train.tasks_per_step=40",)
"""Queries of a step whose whole episodes ask as many replies as 64 of joyagents."""
TWICE = ("train.tasks_per_step=46",)
"""The same, of alternatives that are played twice."""
PAIRS = ("algorithm.continuations=2", "train.tasks_per_step=16")
"""What the rules that measure chance need."""
SHORT = ("train.steps=12", "train.eval_every=12", "train.eval_tasks=100")
"""A budget at which every rule can be compared with every kind of notes."""
FIVE = (0, 1, 2, 3, 4)
METHODS = {
    "joyagents": Row("joyagents", CONFIG, seeds=FIVE),
    "c3": Row("c3, played twice", CONFIG, {"name": "c3"}, TWICE, FIVE),
    "drmas": Row("drmas, 8 episodes", CONFIG, {"name": "drmas", **WHOLE}, MATCHED, FIVE),
    "mas_grpo": Row("mas_grpo, 8 episodes", CONFIG, {"name": "mas_grpo", **WHOLE}, MATCHED, FIVE),
    "paper": Row("joyagents_paper, our rewards", CONFIG, {"name": "joyagents_paper"}, seeds=FIVE),
    "solo": Row("one agent with every tool, grpo", SOLO, seeds=FIVE),
}
CONTEST = (
    Entrant("team of five, joyagents", "joyagents"),
    Entrant("team of five, mas_grpo", "mas_grpo"),
    Entrant("one agent with every tool", "solo"),
    Entrant("one agent with every tool, 5 votes", "solo", 5),
)
CELLS = {
    f"{rule}_{mode}": Row(
        f"12 steps, {rule}, notes {mode}",
        CONFIG,
        overrides=(*SHORT, *PAIRS, f"algorithm.selection={rule}", *notes),
    )
    for mode, notes in NOTES.items()
    for rule in RULES
}
TABLE = Table(Path("runs/bench-joyagents"), "coterie.bench.joyagents", METHODS | CELLS)
STEPS = (0, 10, 20, 30)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    TABLE.make(say, list(METHODS))
    TABLE.make(say)
    PAGE.write_text(plain("\n".join(page(say))))
    PICTURE.write_text(picture(TABLE, CONTEST))
    return TABLE.success()


def page(say: Say) -> list[str]:
    """The results page, from all finished runs."""
    return [
        "# Results: assistants",
        "",
        "Written by `coterie bench joyagents`. Embedded queries, from the shipped starter-assistants (0.92 million "
        "parameters), a policy a role, greedy play on 1,000 held-out queries, which training never sees; the "
        "checkpoint is chosen by 300 validation queries (100 in the short runs). Intervals are 95 % over seeds "
        "(Student's t); one thread a run, several at once. "
        "The scripted expert solves every query.",
        "",
        "`replies a query` are what training asked of the engine for each query of a step, all roles together. "
        "Every row has the seeds that `by seed` shows, from 0.",
        "",
        *_results(),
        "",
        "## Does the team beat one agent?",
        "",
        "The agent is the master alone, with the tools of all, from a starter made in the same way; its calls to tools "
        "are its turns. Votes: the most frequent of five sampled replies at every call.",
        "",
        "![success against sampled tokens](joyagents_contest.svg)",
        "",
        *table_lines(TABLE, CONTEST, say),
        "",
        "## Selection and memory",
        "",
        "12 steps of 16 queries, 4 alternatives played twice. Success, mean over seeds, in brackets by seed.",
        "",
        *_cells(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves(STEPS, names=list(METHODS)),
        "",
        "## By skill, and calls a query",
        "",
        "Greedy, the same queries, mean over seeds: share solved, then calls of the whole team.",
        "",
        *_kinds(say),
        "",
        "## With and without notes",
        "",
        "The teams of all_live that were trained with notes, played without, with them, and with each note another's; "
        "mean over seeds.",
        "",
        *_memory(say),
        "",
    ]


def _results() -> list[str]:
    lines = [
        "| | start | success | 95 % over seeds | by seed | gap closed | replies a query | queries | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in TABLE.rows.items():
        if found := TABLE.found(name):
            before, after = (fmean(one[key] for one in found) for key in ("start_success", "success"))
            runs = TABLE.runs(name)
            queries = runs[0].config.train.steps * runs[0].config.train.tasks_per_step
            cells = (
                row.title,
                f"{before:.3f}",
                f"**{after:.3f}**",
                interval([one["success"] for one in found]),
                ", ".join(f"{one['success']:.3f}" for one in found),
                f"{(after - before) / (1 - before):.0%}",
                f"{fmean(run.metrics()[-1]['budget/replies'] for run in runs) / queries:.0f}",
                f"{queries}",
                f"{fmean(one['training_minutes'] for one in found):.1f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cells() -> list[str]:
    lines = [f"| | {' | '.join(f'notes {mode}' for mode in NOTES)} |", "|---|" + "---|" * len(NOTES)]
    for rule in RULES:
        found = [[one["success"] for one in TABLE.found(f"{rule}_{mode}")] for mode in NOTES]
        cells = [f"{fmean(one):.3f} ({', '.join(f'{x:.3f}' for x in one)})" if one else "" for one in found]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


def _kinds(say: Say) -> list[str]:
    lines: list[str] = []
    for heading, name, step in (("start", "joyagents", 0), *((row.title, name, None) for name, row in METHODS.items())):
        runs = TABLE.runs(name)[: 1 if step == 0 else None]
        if found := [load(run.folder, step).evaluate() for run in runs]:
            say(f"by skill, {heading}: done")
            kinds = list(found[0].by_kind)
            if not lines:
                head = " | ".join([*kinds, "all"] * 2)
                lines += [f"| | {head} |", "|---|" + "---|" * (2 * len(kinds) + 2)]
            cells = [f"{fmean(one.by_kind[kind] for one in found):.2f}" for kind in kinds]
            cells += [f"{fmean(one.success for one in found):.2f}"]
            cells += [f"{fmean(fmean(_calls(one, kind)) for one in found):.2f}" for kind in kinds]
            cells += [f"{fmean(fmean(one.noted['calls']) for one in found):.2f}"]
            lines.append(f"| {heading} | {' | '.join(cells)} |")
    return lines


def _calls(found: Evaluation, kind: str) -> Sequence[float]:
    return [count for count, one in zip(found.noted["calls"], found.kinds, strict=True) if one == kind]


def _memory(say: Say) -> list[str]:
    found: dict[Mode, list[Evaluation]] = {"off": [], "on": [], "placebo": []}
    for run in TABLE.runs("all_live_on"):
        loaded = load(run.folder)
        for mode, evaluations in found.items():
            loaded.remember(mode)
            evaluations.append(loaded.evaluate())
            say(f"notes, {run.folder.name}, {mode}: done")
    return [
        f"| notes {' | notes '.join(found)} |",
        "|---|---|---|",
        f"| {' | '.join(map(_interval, found.values()))} |",
    ]


def _interval(found: Sequence[Evaluation]) -> str:
    return spread([one.success for one in found])
