"""Tables of training runs: rows have several seeds. Runs are trained once, with one thread and core each."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import Any

from benchmarks.figures import keep, lines_of
from benchmarks.intervals import over_seeds
from coterie.bench import Say
from coterie.bench.demo_small import before_and_after
from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.errors import ConfigError
from coterie.installed import starter_folder, starters
from coterie.report.curves import latest_of
from coterie.run.folder import Run
from coterie.run.loaded import load

FIVE = (0, 1, 2, 3, 4)
"""Seeds of a row that the README quotes."""
TEN = tuple(range(10))
"""Seeds of a row that five did not tell from another, by so little that ten may."""
HEAD = [
    "| | start | success | 95 % interval over seeds | by seed | turns, start to end | sampled tokens (M) | "
    "trained tokens (M) | live groups, last step | entropy, last step (nats) |",
    "|---|---|---|---|---|---|---|---|---|---|",
]


@dataclass(frozen=True)
class Row:
    """One line of a table of runs: a config, as a file or its tables, what differs from it, and its seeds.

    algorithm: instead of the config's whole table; None: as it is. overrides: `{seed}` in them is the seed. votes: also
    played with so many replies to every question, of which the most frequent counts; 1: not. of: what its runs depend
    on besides, such as how a model is made that they begin with.
    """

    title: str
    config: str | Mapping[str, Any]
    algorithm: Mapping[str, Any] | None = None
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    votes: int = 1
    of: str = ""

    def tables(self) -> dict[str, Any]:
        """Returns the config's tables, before the overrides."""
        tables = tomllib.loads(Path(self.config).read_text()) if isinstance(self.config, str) else dict(self.config)
        return tables | ({"algorithm": self.algorithm} if self.algorithm else {})

    def resolved(self, seed: int) -> Config:
        """Returns the config of the run with this seed."""
        overrides = [each.replace("{seed}", str(seed)) for each in self.overrides]
        return load_config(self.tables(), [*overrides, f"train.seed={seed}"])

    @cached_property
    def digest(self) -> str:
        """Hash by which the row's runs are recognised: figures of a row that was another are not its own.

        It changes with what is written here and in the config, with what the environment recommends, and with the
        weights of shipped starters. It does not see that code has changed.
        """
        config = self.resolved(self.seeds[0])
        used = {policy.model for policy in config.policies.values()} & starters().keys()
        weights = [_weights(name) for name in sorted(used)]
        told = [self.tables(), self.overrides, self.votes, self.of, config.environment.recommended(), weights]
        return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    @cached_property
    def budget(self) -> int | None:
        """Number of sampled tokens that each of the row's runs may train on."""
        return self.resolved(self.seeds[0]).train.max_sampled_tokens


def with_ten(rows: Mapping[str, Row], names: Collection[str]) -> dict[str, Row]:
    """Returns the rows, of which those that are named have ten seeds."""
    return {**rows, **{name: replace(rows[name], seeds=TEN) for name in names}}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and the folders of their runs, FOLDER/ROW-SEED. home: the module whose TABLE this is.

    kept: the file with a line of figures a run, from which pages are written; None: FOLDER/figures.jsonl. In the
    repository it has a page written anew, and the next runs added, without those that were made before. begin: makes
    what the runs of some rows begin with, before the first one.
    """

    folder: Path
    home: str
    rows: Mapping[str, Row]
    kept: Path | None = None
    begin: Callable[[Say, Collection[str]], None] = lambda say, rows: None

    @property
    def file(self) -> Path:
        """Path of the file with the figures."""
        return self.kept or self.folder / "figures.jsonl"

    def make(self, say: Say, names: Sequence[str] | None = None) -> None:
        """Makes the runs that are missing, of all rows or of some: every row's first seed before the second.

        Raises:
            ConfigError: another process makes runs of this table, or this is no checkout of the repository.
        """
        if self.kept:
            in_checkout(self.kept.parent)
        wanted = tuple(dict.fromkeys(names or self.rows))
        jobs = [(name, seed) for name in wanted for seed in self.rows[name].seeds]
        jobs.sort(key=lambda job: job[1])
        done = {(name, seed) for name in wanted for seed in self._by_seed(name)}
        waiting = [job for job in jobs if job not in done]
        say(f"{len(waiting)} of {len(jobs)} runs to do, in {self.folder}{self._cost(waiting)}")
        if not waiting:
            return
        STOPPED.clear()
        with self._locked(), ThreadPoolExecutor(os.cpu_count()) as pool:
            self.begin(say, {name for name, _ in waiting})
            began = time.monotonic()
            try:
                for number, figures in enumerate(pool.map(self._subprocess, waiting), 1):
                    left = (time.monotonic() - began) / number * (len(waiting) - number) / 60
                    name, seed, success = (figures[key] for key in ("row", "seed", "success"))
                    say(f"{number}/{len(waiting)} {name}, seed {seed}: {success:.3f}; {left:.0f} minutes left")
            except BaseException:
                STOPPED.set()
                pool.shutdown(wait=False, cancel_futures=True)
                for process in tuple(RUNNING):
                    process.kill()
                say("stopped; runs that had ended are kept, and the same command makes the others")
                raise

    def _cost(self, jobs: Sequence[tuple[str, int]]) -> str:
        """Returns about how long runs take, in words, if other seeds of all their rows have been made."""
        minutes = [[figures["cpu_minutes"] for figures in self._by_seed(name).values()] for name, _ in jobs]
        return f", about {sum(map(fmean, minutes)):.0f} minutes of CPU time" if minutes and all(minutes) else ""

    def publish(self, page: Path, lines: Callable[[], Sequence[str]], say: Say) -> dict[str, float]:
        """Makes the runs that are missing, writes the page, and returns success by row."""
        self.make(say)
        page.write_text("\n".join(lines()))
        return self.success()

    def found(self, name: str) -> list[dict[str, Any]]:
        """Returns the figures of a row's finished runs, by seed from the first up to the first that is missing."""
        by_seed = self._by_seed(name)
        return [by_seed[seed] for seed in takewhile(by_seed.__contains__, self.rows[name].seeds)]

    def spent(self, names: Sequence[str] | None = None) -> tuple[float, float]:
        """Returns CPU hours of the finished runs, and the most that one sampled beyond its budget, as a share of it.

        Args:
            names: of rows. None: all.

        Raises:
            ConfigError: a run ended before its budget was spent, so that rows are not comparable.
        """
        hours, beyond = 0.0, 0.0
        for name in names or self.rows:
            row = self.rows[name]
            for figures in self.found(name):
                hours += figures["cpu_minutes"] / 60
                if row.budget:
                    over = figures["sampled_tokens"] / row.budget - 1
                    if over < 0:
                        raise ConfigError(
                            f"{name}, seed {figures['seed']} ended with its budget unspent; raise train.steps"
                        )
                    beyond = max(beyond, over)
        return hours, beyond

    def _by_seed(self, name: str) -> dict[int, dict[str, Any]]:
        """Returns the figures of a row as it is now, by seed."""
        return lines_of(self.file, row=name, digest=self.rows[name].digest)

    def trained(self, name: str, seed: int) -> Path:
        """Returns the folder of a run. It is trained again if only its figures are there.

        Raises:
            ConfigError: it must be trained, and another process makes runs of this table.
        """
        folder, known = self.folder / f"{name}-{seed}", self._by_seed(name).get(seed)
        if not known or not self._is_there(name, seed, known["sampled_tokens"]):
            with self._locked():
                self._subprocess((name, seed))
        return folder

    def _is_there(self, name: str, seed: int, sampled: int) -> bool:
        """Returns True if the run's folder is of this row and ended after so many sampled tokens."""
        folder = self.folder / f"{name}-{seed}"
        if not folder.exists():
            return False
        run = Run(folder)
        ended = [line["budget/sampled_tokens"] for line in run.metrics()[-1:]]
        config = self.rows[name].resolved(seed)
        if config.train.dtype == "auto":
            config = replace(config, train=config.train.model_copy(update={"dtype": run.config.train.dtype}))
        there, wanted = run.config.tables(), config.tables()
        del there["engine"], wanted["engine"]  # a run says there what its machine has
        return ended == [sampled] and there == wanted

    def runs(self, name: str) -> list[Run]:
        """Returns the finished runs of a row."""
        return [Run(Path(row["run"])) for row in self.found(name)]

    def success(self) -> dict[str, float]:
        """Returns mean success by row."""
        return {name: round(fmean(row["success"] for row in self.found(name)), 4) for name in self.rows}

    def lines(self) -> list[str]:
        """Returns the lines of the table, with a line per row that has runs."""
        return [*HEAD, *(self._line(name) for name in self.rows if self.found(name))]

    def curves(self, steps: Sequence[int], names: Sequence[str] | None = None) -> list[str]:
        """Returns a table of validation success of all rows, or of some, at a few steps, mean over seeds."""
        lines = [f"| | {' | '.join(map(str, steps))} |", "|---|" + "---|" * len(steps)]
        for name in names or self.rows:
            points = [point for figures in self.found(name) for point in figures["curve"]]
            there = [[success for step, _, success in points if step == at] for at in steps]
            if any(there):
                cells = [f"{fmean(values):.3f}" if values else "" for values in there]
                lines.append(f"| {self.rows[name].title} | {' | '.join(cells)} |")
        return lines

    def _line(self, name: str) -> str:
        finished = self.found(name)
        success = fmean(row["success"] for row in finished)
        cells = (
            self.rows[name].title,
            f"{fmean(row['start_success'] for row in finished):.3f}",
            f"**{success:.3f}**",
            interval([row["success"] for row in finished]),
            ", ".join(f"{row['success']:.3f}" for row in finished),
            f"{fmean(row['start_turns'] for row in finished):.2f} to {fmean(row['turns'] for row in finished):.2f}",
            f"{fmean(row['sampled_tokens'] for row in finished) / 1e6:.2f}",
            f"{fmean(row['trained_tokens'] for row in finished) / 1e6:.2f}",
            f"{fmean(row['live'] for row in finished):.0%}",
            f"{fmean(row['entropy'] for row in finished):.2f}",
        )
        return f"| {' | '.join(cells)} |"

    def _subprocess(self, job: tuple[str, int]) -> dict[str, Any]:
        """Trains one row and seed in a process of its own, on one thread, and keeps its figures, if they are new."""
        command = [sys.executable, "-c", TRAINS, self.home, *map(str, job)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        # Ctrl-C is for this process, which then ends the others: a session of its own keeps it from them.
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            RUNNING.add(process)
            if STOPPED.is_set():  # it began while the others were ended
                process.kill()
            told, _ = process.communicate()
            RUNNING.discard(process)
        if process.returncode:
            raise ConfigError(f"{job[0]}, seed {job[1]} failed; what it said is above")
        figures = json.loads(told.splitlines()[-1])
        if self._by_seed(job[0]).get(job[1], {}).get("sampled_tokens") != figures["sampled_tokens"]:
            keep(self.file, figures)
        return figures

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the table's runs for this process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(f"another process makes runs in {self.folder}; wait for it, or stop it") from error
            yield

    def train(self, name: str, seed: int) -> dict[str, Any]:
        """Trains one row and seed in this process, and returns its figures.

        Rows start from one starter, whatever the seed: where it has played these tasks, it does not play them again.
        """
        row, folder = self.rows[name], self.folder / f"{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        known = ("start_success", "start_turns", "start_votes")
        played = [] if any("{seed}" in each for each in row.overrides) else self.found(name)[:1]
        start = {key: earlier[key] for earlier in played for key in known if key in earlier}
        before = cpu_minutes()
        figures = before_and_after(row.resolved(seed), folder, start=start or None)
        if row.votes > 1:
            start.setdefault("start_votes", load(folder, 0).evaluate(votes=row.votes).success)
            figures["votes"] = load(folder).evaluate(votes=row.votes).success
        told = {"row": name, "seed": seed, "digest": row.digest}
        return told | figures | start | _told(Run(folder)) | {"cpu_minutes": round(cpu_minutes() - before, 2)}


TRAINS = (
    "import ctypes, sys; sys.platform == 'linux' and ctypes.CDLL(None).prctl(1, 9); "  # it ends with whoever started it
    "from benchmarks.rows import train_one; train_one(*sys.argv[1:])"
)
RUNNING: set[subprocess.Popen[str]] = set()
"""The processes that train at present."""
STOPPED = Event()
"""An event after which the processes that train end, and no other begins."""


def in_checkout(folder: Path) -> None:
    """Raises ConfigError if a folder of the repository is not there."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not there; run this in a checkout of the repository")


@cache
def _weights(name: str) -> str:
    """Returns a digest of a shipped starter's files."""
    files = sorted(starter_folder(name).iterdir())
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _told(run: Run) -> dict[str, Any]:
    """Returns those figures of a run's metrics that tables and curves show.

    curve: step, sampled tokens so far and success on validation. turns_curve: mean turns there, at the same steps.
    shares: each role's share of the gradient in the first, second and last third of the steps. mute: the change of
    success without each role, where it was measured.
    """
    lines = run.metrics()
    last = lines[-1]
    known = latest_of(lines)  # a policy that had nothing to learn in the last step has none there
    entropies = [value for key, value in known.items() if key.startswith("policy/") and key.endswith("/entropy")]
    muted = {role: known[key] for role in run.config.team.roles if (key := f"mute/{role}/change") in known}
    trained = [line for line in lines if "groups/total" in line]
    thirds = [trained[len(trained) * part // 3 : len(trained) * (part + 1) // 3] for part in range(3)]
    return {
        "sampled_tokens": last["budget/sampled_tokens"],
        "trained_tokens": last["budget/trained_tokens"],
        "replies": last["budget/replies"],
        "live": round(last["groups/live"] / last["groups/total"], 4),
        "entropy": round(fmean(entropies), 4) if entropies else 0.0,
        "curve": [
            (line["step"], line.get("budget/sampled_tokens", 0), line["validation/success"])
            for line in lines
            if "validation/success" in line
        ],
        "turns_curve": [round(line["validation/turns"], 3) for line in lines if "validation/turns" in line],
        "shares": {
            role: [
                round(fmean(line.get(f"role/{role}/gradient_share", 0.0) for line in third or trained), 3)
                for third in thirds
            ]
            for role in run.config.team.roles
        },
        **({"mute": muted} if muted else {}),
    }


def interval(successes: Sequence[float]) -> str:
    """Returns the 95 % interval of a mean over seeds as text, cut to shares; one seed has none."""
    if len(successes) < 2:
        return "one seed"
    _, low, high = over_seeds(successes)
    return f"{max(0.0, low):.3f} to {min(1.0, high):.3f}"


def cpu_minutes() -> float:
    """Returns the CPU time of this process so far, and of the ended processes that it started, in minutes."""
    return sum(os.times()[:4]) / 60


def train_one(home: str, name: str, seed: str) -> None:
    """Trains one row and seed, in a process that was started for it, and prints the figures as JSON."""
    table: Table = importlib.import_module(home).TABLE
    sys.stdout.write(f"{json.dumps(table.train(name, int(seed)))}\n")
