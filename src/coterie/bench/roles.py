"""Does each role of plan_path earn its place? Muted, swapped and replaced by its start, three seeds.

Uses the runs of `coterie bench plan_path`, and makes those that are missing. Writes docs/results/roles.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.api import load
from coterie.bench import Say
from coterie.bench.plan_path import TABLE
from coterie.diagnose import history
from coterie.run.ablation import Ablation, Change, paired
from coterie.run.evaluate import Evaluation
from coterie.runs import Run

PAGE = Path("docs/results/roles.md")
VIEWS = {
    "demo": "Split view: the proposer sees the map, the planner its neighbourhood and the proposal",
    "full": "Full view: both see the map",
}
ABLATIONS = (
    Ablation("mute", ("proposer",)),
    Ablation("mute", ("planner",)),
    Ablation("swap", ("proposer", "planner")),
    Ablation("replace", ("proposer",), "base"),
    Ablation("replace", ("planner",), "base"),
)
Measured = tuple[Evaluation, list[Evaluation]]


def run(say: Say) -> dict[str, Any]:
    """Measures both views and writes the page; returns the mean change in success by view and ablation."""
    TABLE.make(say, tuple(VIEWS))
    figures: dict[str, Any] = {}
    sections: list[str] = []
    for row, title in VIEWS.items():
        runs = TABLE.runs(row)
        measured = [load(one.folder).ablate(ABLATIONS) for one in runs]
        say(f"{row}: {', '.join(f'{before.success:.3f}' for before, _ in measured)}")
        sections += ["", f"## {title}", "", *_table(measured), "", *_warnings(runs)]
        for number, ablation in enumerate(ABLATIONS):
            figures[f"{row}: {ablation}"] = round(_pooled(measured, number)[0], 4)
    PAGE.write_text("\n".join([*HEAD, *sections, ""]))
    return figures


HEAD = [
    "# Results: does each role earn its place?",
    "",
    "Written by `coterie bench roles`. plan_path on 6 x 6 grids, AT-GRPO, a policy a role, 0.9 million parameters "
    "each, three seeds; greedy play on the same 1,000 test tasks. `mute`: the role says nothing. `swap`: each role is "
    "played by the other's policy. `replace …=base`: the role is played by the policy it started from, its partner as "
    "trained. Changes are in points of success with paired 95 % intervals over tasks (Agresti and Min); the mean over "
    "seeds averages each task's change first, so its interval is over tasks, not over seeds.",
    "",
    "An ablation measures the team as it was trained: what it loses when a role falls silent at once, not what a team "
    "trained without that role would reach. In the full view the planner could find the way alone; it has learned to "
    "follow the proposal, and loses more without it than the planner of the split view, which has learned to feel its "
    "way. (Alone from the start, with the map: the row `grpo, solo` of [the methods](plan_path.md).)",
]


def _table(measured: Sequence[Measured]) -> list[str]:
    seeds = range(len(measured))
    lines = [
        f"| | {' | '.join(f'seed {seed}' for seed in seeds)} | mean over seeds |",
        "|---|" + "---|" * (len(measured) + 1),
        f"| as trained | {' | '.join(f'{before.success:.3f}' for before, _ in measured)} | "
        f"**{fmean(before.success for before, _ in measured):.3f}** |",
    ]
    for number, ablation in enumerate(ABLATIONS):
        changes = [Change.between(ablation, before, after[number]) for before, after in measured]
        cells = [_points(one.change, one.low, one.high) for one in changes]
        lines.append(f"| {ablation} | {' | '.join(cells)} | **{_points(*_pooled(measured, number))}** |")
    return lines


def _pooled(measured: Sequence[Measured], number: int) -> tuple[float, float, float]:
    """The paired change of the tasks' means over seeds."""
    before = [fmean(task) for task in zip(*(one.by_task for one, _ in measured), strict=True)]
    after = [fmean(task) for task in zip(*(several[number].by_task for _, several in measured), strict=True)]
    return paired(before, after)


def _points(change: float, low: float, high: float) -> str:
    return f"{100 * change:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _warnings(runs: Sequence[Run]) -> list[str]:
    """What the runs warned of while they trained."""
    found = [
        f"- seed {seed}, step {step}: {concern.text}"
        for seed, run in enumerate(runs)
        for step, concern in history(run.metrics(), tuple(run.config.team.roles))
    ]
    return ["Warnings during training:", "", *found] if found else ["Warnings during training: none."]
