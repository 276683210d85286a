"""Reads run folders for the viewer: incrementally, while they grow, and without executing code from them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from coterie.bounded import content
from coterie.errors import CheckpointError
from coterie.report.curves import latest_of
from coterie.report.diagnose import Concern, WarningWatch, concerns
from coterie.report.gather import title_of
from coterie.report.pace import steps_of
from coterie.report.trees import Words
from coterie.run.checkpoints import LARGEST_PROGRESS
from coterie.run.folder import Run
from coterie.run.records import PROGRESS, Played, Progress

T = TypeVar("T")
KEPT = 8
"""Number of saved rollouts of a run that are kept in memory."""
LONGEST_WORD = 100
"""Maximum number of characters of a token that are shown."""
TAKEN = ("static", "compare", "index.html")
"""Names that no run's address may have."""
Line = Mapping[str, float]
Stamp = tuple[int, int, int, int]
Identity = tuple[Path, Stamp]
"""Identity of a run: its folder, and a stamp that changes when another run takes the folder."""


class Book:
    """One run of the viewer. name: its address, and what it is called.

    What a file says is kept until the file changes.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.run = Run(folder)
        self.folder = folder
        self._read: dict[str, tuple[Stamp, Any]] = {}
        self._rollouts: OrderedDict[tuple[int, Stamp], list[Played]] = OrderedDict()
        self._watch = WarningWatch(())
        self._seen: Sequence[Line] = ()
        self._warnings: list[tuple[int, Concern]] = []

    @property
    def identity(self) -> Identity:
        """Folder of the run and stamp of its config: a later run in the same folder has another stamp."""
        return identity_of(self.folder)

    @property
    def tables(self) -> Mapping[str, Any]:
        """Config of the run as it is written: the environment's code need not be here.

        Raises:
            CheckpointError: it cannot be read.
        """
        return self._kept("config.toml", lambda _: self.run.tables)

    @property
    def lines(self) -> Sequence[Line]:
        """Lines of metrics.jsonl; empty if the file is not there yet."""
        if not (self.folder / "metrics.jsonl").is_file():
            return []
        return self._kept("metrics.jsonl", lambda _: self.run.metrics())

    @property
    def about(self) -> Mapping[str, Any]:
        """Content of about.json; empty if it cannot be read."""
        with suppress(CheckpointError):
            return self._kept("about.json", lambda _: self.run.about())
        return {}

    @property
    def roles(self) -> Mapping[str, str]:
        """Policy of each role."""
        return self.tables["team"]

    @property
    def policies(self) -> list[str]:
        """Names of the policies, in the order of roles."""
        return list(dict.fromkeys(self.roles.values()))

    @property
    def title(self) -> str:
        """Title of the run: its environment and its algorithm."""
        return title_of(self.tables)

    @property
    def steps(self) -> int:
        """Number of steps that the run will have made."""
        return steps_of(self.lines, self.tables["train"])

    @property
    def step(self) -> int:
        """Latest step in metrics.jsonl; 0 if there is none."""
        return int(max((line["step"] for line in self.lines), default=0))

    @property
    def last(self) -> dict[str, float]:
        """Latest value of each metric."""
        return latest_of(self.lines)

    @property
    def running(self) -> bool:
        """True if a process holds the run, as far as the system says."""
        with suppress(OSError, ValueError):
            lock = f":{(self.folder / 'lock').stat().st_ino}"
            held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            return any(words[1] == "FLOCK" and words[5].endswith(lock) for words in held)
        return False

    @property
    def wrong(self) -> list[Concern]:
        """Warnings that hold at the last step of the run."""
        return concerns(self.lines, tuple(self.roles))

    @property
    def warnings(self) -> list[tuple[int, Concern]]:
        """Warnings so far, each with the step at which it arose."""
        lines = self.lines
        if self._seen != lines[: len(self._seen)] or not self._seen:
            self._watch, self._seen, self._warnings = WarningWatch(tuple(self.roles)), (), []
        for line in lines[len(self._seen) :]:
            self._warnings += [(int(line["step"]), concern) for concern in self._watch.see(line)]
        self._seen = lines
        return self._warnings

    def rollout(self, step: int) -> list[Played]:
        """Returns a saved rollout.

        Raises:
            CheckpointError: it was not saved, or cannot be read.
        """
        file = self.folder / f"episodes/step-{step:05d}.jsonl.gz"
        key = step, stamp_of(file)
        if key not in self._rollouts:
            self._rollouts[key] = self.run.episodes(step)
        self._rollouts.move_to_end(key)
        while len(self._rollouts) > KEPT:
            self._rollouts.popitem(last=False)
        return self._rollouts[key]

    @property
    def progress(self) -> Progress | None:
        """Content of the latest checkpoint beside weights; None: there is no checkpoint."""
        steps = self.run.checkpoints.steps()
        if not steps:
            return None
        name = str(self.run.checkpoints.path(steps[-1]).relative_to(self.folder) / "progress.json")
        return self._kept(name, lambda file: PROGRESS.validate_json(content(file, LARGEST_PROGRESS)))

    @property
    def words(self) -> Words:
        """Functions that give the text of a token, for each policy whose tokenizer lies in a checkpoint."""
        steps = self.run.checkpoints.steps()
        found: dict[str, Callable[[int], str]] = {}
        for name in self.policies if steps else ():
            file = self.run.checkpoints.path(steps[-1]) / "policies" / name / "tokenizer.json"
            if file.is_file():
                found[name] = _words(file, stamp_of(file))
        return found

    def _kept(self, name: str, read: Callable[[Path], T]) -> T:
        file = self.folder / name
        stamp = stamp_of(file)
        if self._read.get(name, (None,))[0] != stamp:
            try:
                if not file.is_file():
                    raise OSError("it is no file")
                self._read[name] = stamp, read(file)
            except (OSError, ValueError) as error:
                raise CheckpointError(f"{file} cannot be read: {error}") from error
        return self._read[name][1]


class Shelf:
    """All runs that the viewer shows.

    Args:
        places: run folders, and folders that hold some.

    Raises:
        CheckpointError: a place is no folder.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        for place in places:
            if not place.is_dir():
                raise CheckpointError(f"{place} is no folder; name a run, or a folder that holds runs")
        self._places = places
        self._books: dict[Path, Book] = {}
        self._lock = Lock()

    def books(self) -> list[Book]:
        """Returns all runs that are there now, the latest first."""
        with self._lock:
            return self._all()

    def _all(self) -> list[Book]:
        folders = list(dict.fromkeys(folder for place in self._places for folder in _runs(place)))
        for gone in self._books.keys() - set(folders):
            del self._books[gone]
        taken = {book.name for book in self._books.values()} | set(TAKEN)
        for folder in folders:
            if folder not in self._books:
                name = _address(folder.resolve().name, taken)
                taken.add(name)
                self._books[folder] = Book(name, folder)
        return sorted(
            (self._books[folder] for folder in folders), key=lambda book: -stamp_of(book.folder / "config.toml")[2]
        )

    def book(self, name: str) -> Book | None:
        """Returns the run at an address; None: there is none."""
        return next((book for book in self.books() if book.name == name), None)


def _runs(place: Path) -> Iterator[Path]:
    if (place / "config.toml").is_file():
        yield place
        return
    with suppress(OSError):
        yield from sorted(
            file.parent for file in place.glob("*/config.toml") if file.is_file() and file.parent.name[0] != "."
        )


def _address(name: str, taken: set[str]) -> str:
    """Returns a name as a part of an address, that no other has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    names = (plain if number == 1 else f"{plain}-{number}" for number in range(1, len(taken) + 3))
    return next(name for name in names if name not in taken)


def stamp_of(file: Path) -> Stamp:
    """Returns a stamp that changes when a file does."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0, 0, 0
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def identity_of(folder: Path) -> Identity:
    """Returns the identity of the run in a folder."""
    return folder, stamp_of(folder / "config.toml")


@lru_cache(maxsize=16)
def _words(file: Path, stamp: Stamp) -> Callable[[int], str]:
    from tokenizers import Tokenizer

    from coterie.models.trial import check_tokenizer

    try:
        check_tokenizer(file.parent, "view")
        made: Any = Tokenizer.from_file(str(file))
    except Exception:  # whatever stands there, it is no tokenizer
        made = None

    @lru_cache(maxsize=200_000)
    def word(token: int) -> str:
        try:
            return made.decode([token], skip_special_tokens=False)[:LONGEST_WORD] or f"<{token}>"
        except BaseException as error:  # a panic of the library is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            return f"<{token}>"

    return word
