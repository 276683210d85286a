"""Ablations of the roles of plan_path: each role is muted, swapped, or replaced by its initial policy.

Uses the runs of `python -m benchmarks plan_path` and trains missing ones. Writes docs/results/roles.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.intervals import over_seeds
from benchmarks.plan_path import TABLE
from coterie.bench import Say
from coterie.report.diagnose import history
from coterie.run.ablation import Ablation, Change
from coterie.run.evaluate import Evaluation
from coterie.run.folder import Run
from coterie.run.loaded import load

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
        measured = [load(run.folder).ablate(ABLATIONS) for run in runs]
        say(f"{row}: {', '.join(f'{before.success:.3f}' for before, _ in measured)}")
        sections += ["", f"## {title}", "", *_table(measured), "", *_warnings(runs)]
        for number, ablation in enumerate(ABLATIONS):
            changes = [after[number].success - before.success for before, after in measured]
            figures[f"{row}: {ablation}"] = round(fmean(changes), 4)
    PAGE.write_text("\n".join([*HEAD, *sections, ""]))
    return figures


HEAD = [
    "# Results: what the team loses without each role",
    "",
    "Written by `python -m benchmarks roles`. "
    "plan_path on 6 x 6 grids was trained with AT-GRPO and one policy of 0.9 million "
    "parameters per role; all variants play the same 1,000 test tasks greedily. `mute`: the role says nothing. `swap`: "
    "each role is played by the other role's policy. `replace …=base`: the role is played by the policy from before "
    "training, its partner by the trained policy. Changes are in percentage points of success. A single seed has a "
    "paired 95 % interval over tasks (Agresti and Min), the mean has a 95 % interval over seeds (Student's t).",
    "",
    "An ablation measures the trained team; it does not test whether a role is needed. It shows what the team loses "
    "when a role suddenly falls silent, not what a team trained without that role would reach. In the full view the "
    "planner could find the way alone. It still loses much without the proposal, because it has learned to follow "
    "it. The size of this loss differs more between seeds than between the two views. (An agent that is trained "
    "alone with the map [does at least as well](plan_path.md).)",
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
        cells = [_points(change.change, change.low, change.high) for change in changes]
        lines.append(
            f"| {ablation} | {' | '.join(cells)} | **{_points(*over_seeds([change.change for change in changes]))}** |"
        )
    return lines


def _points(change: float, low: float, high: float) -> str:
    return f"{100 * change:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _warnings(runs: Sequence[Run]) -> list[str]:
    """Returns the page's lines with the warnings that the runs gave while they trained."""
    warnings = [
        f"- seed {seed}, step {step}: {concern.text}"
        for seed, run in enumerate(runs)
        for step, concern in history(run.metrics(), tuple(run.config.team.roles))
    ]
    return ["Warnings during training:", "", *warnings] if warnings else ["Warnings during training: none."]
