"""The results of plan_path: algorithms at an equal budget, with seeds and intervals.

Runs lie in runs/bench-plan_path/ROW-SEED; finished ones are not run again. One thread a run, as many at
once as there are cores. Writes docs/results/plan_path.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.demo import CONFIG, before_and_after
from coterie.config import Config, load_config
from coterie.evaluate import wilson
from coterie.runs import Run

FOLDER = Path("runs/bench-plan_path")
PAGE = Path("docs/results/plan_path.md")
PICTURE = Path("docs/run.svg")
ONE_POLICY = "configs/plan_path_shared.toml"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a config, what differs from it, and its seeds.

    algorithm: instead of the config's whole table; None: as it is.
    """

    title: str
    config: str = CONFIG
    algorithm: Mapping[str, Any] | None = None
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)

    def resolved(self, seed: int) -> Config:
        """The run's config."""
        tables = tomllib.loads(Path(self.config).read_text())
        tables["algorithm"] = self.algorithm or tables["algorithm"]
        return load_config(tables, [*self.overrides, f"train.seed={seed}"])


SHORT = ("train.steps=40", "train.tasks_per_step=24")
"""A budget at which every method can be compared in minutes."""
ROWS = {
    "demo": Row("at_grpo, horizon point, random commit, a policy a role (the demo)"),
    "full": Row("the demo, but both see the map (view full)", overrides=("environment.view=full",)),
    "long": Row("the demo, twice the steps", overrides=("train.steps=260",), seeds=(0,)),
    "short": Row("40 steps of 24 tasks: at_grpo as in the demo", overrides=SHORT),
    "short_mas": Row("… mas_grpo", algorithm={"name": "mas_grpo"}, overrides=SHORT),
    "short_solo": Row("… grpo, solo", ONE_POLICY, {"name": "grpo"}, (*SHORT, "environment.solo=true")),
    "short_turn": Row("… at_grpo, horizon turn", overrides=(*SHORT, "algorithm.horizon=turn")),
    "short_shared": Row("… at_grpo, one shared policy", ONE_POLICY, overrides=SHORT),
    "short_greedy": Row("… at_grpo, greedy commit (the paper's)", overrides=(*SHORT, "algorithm.commit=greedy")),
}


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    make([(row, seed) for row in ROWS for seed in ROWS[row].seeds], say)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    PICTURE.write_text(picture())
    return {row: round(fmean(one["success"] for one in _all(row)), 4) for row in ROWS}


def make(jobs: Sequence[tuple[str, int]], say: Say) -> None:
    """Makes those runs of (row, seed) that are missing."""
    waiting = [job for job in jobs if not _figures(*job).exists()]
    say(f"{len(waiting)} of {len(jobs)} runs to do, in {FOLDER}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for row, seed in pool.map(_subprocess, waiting):
            say(f"{row}, seed {seed}: {json.loads(_figures(row, seed).read_text())['success']:.3f}")


def page() -> str:
    """The results page, from the figures of all finished runs."""
    lines = [
        "# Results: plan_path",
        "",
        "Written by `coterie bench plan_path`. 6 x 6 grids, split view, from the shipped starter (0.9 million "
        "parameters). Success is greedy play on the same 1,000 test tasks, which training never sees; the checkpoint "
        "is chosen by 400 validation tasks. Intervals are 95 % (Wilson) over all tasks of all seeds. Turns count the "
        "unsolved at the limit of 4. The rows of one budget have the same steps, tasks and replies a group; what "
        "that cost is counted in sampled and trained tokens (millions, a run). "
        "A run has one thread here; with two, as in `make demo`, sums in another order lead elsewhere.",
        "",
        "| | start | success | interval | by seed | turns | sampled | trained | live groups, last step | entropy |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in ROWS if _all(row)]
    return "\n".join([*lines, "", "## Validation success by step", "", *_curves(), ""])


def picture() -> str:
    """The demo's validation success over training as an SVG, a thin line a seed and their mean."""
    runs = [Run(Path(one["run"])).metrics() for one in _all("demo")]
    curves = [
        [(line["step"], line["validation/success"]) for line in run if "validation/success" in line] for run in runs
    ]
    curves.append([(points[0][0], fmean(success for _, success in points)) for points in zip(*curves, strict=True)])
    last = curves[-1][-1][0]

    def place(step: float, success: float) -> str:
        return f"{60 + 560 * step / last:.1f},{20 + 220 * (1 - success):.1f}"

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 290" font-family="sans-serif" font-size="13">',
        '<rect width="640" height="290" fill="#ffffff"/>',
    ]
    for success in (0.0, 0.25, 0.5, 0.75, 1.0):
        (x, y), (right, _) = (place(step, success).split(",") for step in (0, last))
        lines.append(f'<line x1="{x}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>')
        lines.append(f'<text x="52" y="{float(y) + 4}" text-anchor="end" fill="#444444">{success:.0%}</text>')
    for points in curves:
        mean = points is curves[-1]
        style = 'stroke="#1f6feb" stroke-width="3"' if mean else 'stroke="#9ec3ff" stroke-width="1"'
        lines.append(f'<polyline fill="none" {style} points="{" ".join(place(*point) for point in points)}"/>')
    for step in (0, last // 2, last):
        x = place(step, 0).split(",")[0]
        lines.append(f'<text x="{x}" y="258" text-anchor="middle" fill="#444444">{step:.0f}</text>')
    title = "Success on validation grids, greedy, by training step: three seeds and their mean"
    lines.append(f'<text x="340" y="280" text-anchor="middle" fill="#111111">{title}</text></svg>')
    return "\n".join(lines) + "\n"


def _line(row: str) -> str:
    found = _all(row)
    success = fmean(one["success"] for one in found)
    low, high = wilson(success, sum(one["tasks"] for one in found))
    last = [Run(Path(one["run"])).metrics()[-1] for one in found]
    live = fmean(line["groups/live"] / line["groups/total"] for line in last)
    entropies = [value for line in last for key, value in line.items() if key.endswith("/entropy")]
    cells = (
        ROWS[row].title,
        f"{fmean(one['start_success'] for one in found):.3f}",
        f"**{success:.3f}**",
        f"{low:.3f} to {high:.3f}",
        ", ".join(f"{one['success']:.3f}" for one in found),
        f"{fmean(one['start_turns'] for one in found):.2f} to {fmean(one['turns'] for one in found):.2f}",
        f"{fmean(line['budget/sampled_tokens'] for line in last) / 1e6:.2f}",
        f"{fmean(line['budget/trained_tokens'] for line in last) / 1e6:.2f}",
        f"{live:.0%}",
        f"{fmean(entropies):.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _curves() -> list[str]:
    """Validation success at a few steps, mean over seeds."""
    steps = (0, 20, 40, 80, 120, 180, 260)
    lines = [f"| | {' | '.join(map(str, steps))} |", "|---|" + "---|" * len(steps)]
    for row, settings in ROWS.items():
        runs = [Run(Path(one["run"])).metrics() for one in _all(row)]
        cells: list[str] = []
        for step in steps:
            there = [
                line["validation/success"]
                for run in runs
                for line in run
                if line["step"] == step and "validation/success" in line
            ]
            cells.append(f"{fmean(there):.3f}" if there else "")
        if runs:
            lines.append(f"| {settings.title} | {' | '.join(cells)} |")
    return lines


def _figures(row: str, seed: int) -> Path:
    return FOLDER / f"{row}-{seed}.json"


def _all(row: str) -> list[dict[str, Any]]:
    files = [_figures(row, seed) for seed in ROWS[row].seeds]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _subprocess(job: tuple[str, int]) -> tuple[str, int]:
    """Trains one row and seed in a process of its own, on one thread."""
    command = [
        sys.executable,
        "-c",
        "import sys; from coterie.bench.plan_path import _one; _one(sys.argv)",
        *map(str, job),
    ]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    return job


def _one(arguments: list[str]) -> None:
    row, seed = arguments[1], int(arguments[2])
    folder = FOLDER / f"{row}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    figures = before_and_after(ROWS[row].resolved(seed), folder)
    _figures(row, seed).write_text(json.dumps(figures, indent=1))
