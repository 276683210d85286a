"""Tables of training runs: rows have several seeds. Runs are trained once, with one thread and core each."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.demo import before_and_after
from coterie.bench.intervals import over_seeds
from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.run.folder import Run

FIVE = (0, 1, 2, 3, 4)
"""Seeds of a row that the README quotes."""
HEAD = [
    "| | start | success | 95 % interval over seeds | by seed | turns, start to end | sampled tokens (M) | "
    "trained tokens (M) | live groups, last step | entropy, last step (nats) |",
    "|---|---|---|---|---|---|---|---|---|---|",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a config, what differs from it, and its seeds.

    algorithm: instead of the config's whole table; None: as it is.
    """

    title: str
    config: str
    algorithm: Mapping[str, Any] | None = None
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)

    def resolved(self, seed: int) -> Config:
        """The run's config."""
        tables = tomllib.loads(Path(self.config).read_text())
        tables["algorithm"] = self.algorithm or tables["algorithm"]
        return load_config(tables, [*self.overrides, f"train.seed={seed}"])


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and where their runs lie, FOLDER/ROW-SEED. home: the module whose TABLE this is."""

    folder: Path
    home: str
    rows: Mapping[str, Row]

    def make(self, say: Say, names: Sequence[str] | None = None) -> None:
        """Makes the runs that are missing, of all rows or of some: every row's first seed before the second."""
        jobs = [(name, seed) for name in names or self.rows for seed in self.rows[name].seeds]
        jobs.sort(key=lambda job: job[1])
        waiting = [job for job in jobs if not self._figures(*job).exists()]
        say(f"{len(waiting)} of {len(jobs)} runs to do, in {self.folder}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for name, seed in pool.map(self._subprocess, waiting):
                say(f"{name}, seed {seed}: {json.loads(self._figures(name, seed).read_text())['success']:.3f}")

    def publish(self, page: Path, lines: Callable[[], Sequence[str]], say: Say) -> dict[str, float]:
        """Makes the runs that are missing, writes the page, and returns success by row."""
        self.make(say)
        page.write_text("\n".join(lines()))
        return self.success()

    def found(self, name: str) -> list[dict[str, Any]]:
        """What the finished runs of a row achieved."""
        files = [self._figures(name, seed) for seed in self.rows[name].seeds]
        return [json.loads(file.read_text()) for file in files if file.exists()]

    def runs(self, name: str) -> list[Run]:
        """The finished runs of a row."""
        return [Run(Path(row["run"])) for row in self.found(name)]

    def success(self) -> dict[str, float]:
        """Mean success by row."""
        return {name: round(fmean(row["success"] for row in self.found(name)), 4) for name in self.rows}

    def lines(self) -> list[str]:
        """The table."""
        return [*HEAD, *(self._line(name) for name in self.rows if self.found(name))]

    def curves(self, steps: Sequence[int], names: Sequence[str] | None = None) -> list[str]:
        """Validation success of all rows, or of some, at a few steps, mean over seeds."""
        metric = "validation/success"
        lines = [f"| | {' | '.join(map(str, steps))} |", "|---|" + "---|" * len(steps)]
        for name in names or self.rows:
            runs = [run.metrics() for run in self.runs(name)]
            there = [
                [line[metric] for run in runs for line in run if line["step"] == at and metric in line] for at in steps
            ]
            if any(there):
                cells = [f"{fmean(values):.3f}" if values else "" for values in there]
                lines.append(f"| {self.rows[name].title} | {' | '.join(cells)} |")
        return lines

    def _line(self, name: str) -> str:
        finished = self.found(name)
        success = fmean(row["success"] for row in finished)
        last = [run.metrics()[-1] for run in self.runs(name)]
        live = fmean(line["groups/live"] / line["groups/total"] for line in last)
        entropies = [
            value
            for line in last
            for key, value in line.items()
            if key.startswith("policy/") and key.endswith("/entropy")
        ]
        cells = (
            self.rows[name].title,
            f"{fmean(row['start_success'] for row in finished):.3f}",
            f"**{success:.3f}**",
            interval([row["success"] for row in finished]),
            ", ".join(f"{row['success']:.3f}" for row in finished),
            f"{fmean(row['start_turns'] for row in finished):.2f} to {fmean(row['turns'] for row in finished):.2f}",
            f"{fmean(line['budget/sampled_tokens'] for line in last) / 1e6:.2f}",
            f"{fmean(line['budget/trained_tokens'] for line in last) / 1e6:.2f}",
            f"{live:.0%}",
            f"{fmean(entropies):.2f}",
        )
        return f"| {' | '.join(cells)} |"

    def _figures(self, name: str, seed: int) -> Path:
        return self.folder / f"{name}-{seed}.json"

    def _subprocess(self, job: tuple[str, int]) -> tuple[str, int]:
        """Trains one row and seed in a process of its own, on one thread."""
        code = "import sys; from coterie.bench.rows import train_one; train_one(*sys.argv[1:])"
        command = [sys.executable, "-c", code, self.home, *map(str, job)]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
        return job

    def train(self, name: str, seed: int) -> None:
        """Trains one row and seed here, and writes its figures.

        Rows start from a shipped starter, whatever the seed: where one has been played, it is not played again.
        """
        folder = self.folder / f"{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        start = {key: row[key] for row in self.found(name)[:1] for key in ("start_success", "start_turns")} or None
        before = cpu_minutes()
        figures = before_and_after(self.rows[name].resolved(seed), folder, start=start)
        figures["cpu_minutes"] = cpu_minutes() - before
        self._figures(name, seed).write_text(json.dumps(figures, indent=1))


def interval(successes: Sequence[float]) -> str:
    """The 95 % interval of a mean over seeds, cut to shares; one seed has none."""
    if len(successes) < 2:
        return "one seed"
    _, low, high = over_seeds(successes)
    return f"{max(0.0, low):.3f} to {min(1.0, high):.3f}"


def cpu_minutes() -> float:
    """CPU time of this process so far, and of the processes it started that have ended, in minutes."""
    return sum(os.times()[:4]) / 60


def train_one(home: str, name: str, seed: str) -> None:
    """What a process of its own runs."""
    table: Table = importlib.import_module(home).TABLE
    table.train(name, int(seed))
