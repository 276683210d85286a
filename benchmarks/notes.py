"""Selection rules with and without notes: short trainings of `assistants` with five rules and three memory modes.

Writes docs/results/notes.md.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.contest import spread
from benchmarks.joyagents import CONFIG
from benchmarks.rows import Row, Table
from coterie.bench import Say
from coterie.memory.store import Mode
from coterie.run.evaluate import Evaluation
from coterie.run.loaded import load

PAGE = Path("docs/results/notes.md")
RULES = ("all_live", "random_live", "raw_var", "signal", "shrunk")
NOTES = {
    "off": (),
    "on": ("memory.mode=on", "memory.relevance=0.2"),
    "placebo": ("memory.mode=placebo", "memory.relevance=0.2"),
}
PAIRS = ("algorithm.continuations=2", "train.tasks_per_step=16")
"""Settings for the selection rules that measure chance: each alternative is played twice."""
SHORT = ("train.steps=12", "train.eval_every=12", "train.eval_tasks=100")
"""Settings of a budget at which every rule can be compared with every kind of notes."""
TABLE = Table(
    Path("runs/bench-notes"),
    "benchmarks.notes",
    {
        f"{rule}_{mode}": Row(
            f"{rule}, notes {mode}", CONFIG, overrides=(*SHORT, *PAIRS, f"algorithm.selection={rule}", *notes)
        )
        for mode, notes in NOTES.items()
        for rule in RULES
    },
)


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    TABLE.make(say)
    PAGE.write_text("\n".join(page(say)))
    return TABLE.success()


def page(say: Say) -> list[str]:
    """Returns the lines of the results page, from all finished runs."""
    return [
        "# Results: selection rules, and notes",
        "",
        "Written by `python -m benchmarks notes`. "
        "`assistants` is trained from its starter with joyagents for 12 steps of "
        "16 queries; 4 alternatives are each played twice. A row is a selection rule (`selection` in the "
        "[config](../config.md) explains them), a column a setting of the [memory](../memory.md). A cell gives the "
        "success of greedy play on 1,000 held-out queries: the mean over seeds, and in brackets each seed. With "
        "`placebo`, each query is shown the note of another query. The last row averages over the rules for each "
        "seed, then gives the mean and its 95 % interval over seeds (Student's t); the three intervals overlap.",
        "",
        *_cells(),
        "",
        "The teams that were trained with `all_live` and notes, evaluated without notes, with notes and with the "
        "placebo (mean and 95 % interval over seeds):",
        "",
        *_played(say),
        "",
    ]


def _cells() -> list[str]:
    lines = [f"| | {' | '.join(f'notes {mode}' for mode in NOTES)} |", "|---|" + "---|" * len(NOTES)]
    for rule in RULES:
        successes = [_successes(rule, mode) for mode in NOTES]
        cells = [f"{fmean(one):.3f} ({', '.join(f'{x:.3f}' for x in one)})" for one in successes]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    means = [
        [fmean(seeds) for seeds in zip(*(_successes(rule, mode) for rule in RULES), strict=True)] for mode in NOTES
    ]
    return [*lines, f"| all rules | {' | '.join(map(spread, means))} |"]


def _successes(rule: str, mode: str) -> list[float]:
    """Returns success with a selection rule and a memory mode, by seed."""
    return [row["success"] for row in TABLE.found(f"{rule}_{mode}")]


def _played(say: Say) -> list[str]:
    by_mode: dict[Mode, list[Evaluation]] = {"off": [], "on": [], "placebo": []}
    for run in TABLE.runs("all_live_on"):
        loaded = load(run.folder)
        for mode, evaluations in by_mode.items():
            loaded.remember(mode)
            evaluations.append(loaded.evaluate())
            say(f"notes, {run.folder.name}, {mode}: done")
    means = (spread([evaluation.success for evaluation in evaluations]) for evaluations in by_mode.values())
    return [f"| notes {' | notes '.join(by_mode)} |", "|---|---|---|", f"| {' | '.join(means)} |"]
