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
from coterie.report.diagnose import Concern, Watch, concerns
from coterie.report.pace import steps_of
from coterie.report.trees import Words
from coterie.run.checkpoints import LARGEST_PROGRESS
from coterie.run.folder import Run, title_of
from coterie.run.records import PROGRESS, Played, Progress

T = TypeVar("T")
KEPT = 8
"""Saved rollouts of a run that are kept in memory."""
LONGEST_WORD = 100
"""Characters of a token that are shown."""
TAKEN = ("static", "compare", "index.html")
"""Names that no run's address may have."""
Line = Mapping[str, float]
Stamp = tuple[int, int, int, int]
Identity = tuple[Path, Stamp]
"""A run: its folder, and what changes when another run takes the folder."""


class Book:
    """One run. name: its address, and what it is called.

    What a file says is kept until the file changes.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.run = Run(folder)
        self.folder = folder
        self._read: dict[str, tuple[Stamp, Any]] = {}
        self._rollouts: OrderedDict[tuple[int, Stamp], list[Played]] = OrderedDict()
        self._watch = Watch(())
        self._seen: Sequence[Line] = ()
        self._warnings: list[tuple[int, Concern]] = []

    @property
    def identity(self) -> Identity:
        """The folder and the stamp of its config: a later run in the same folder has another stamp."""
        return identity_of(self.folder)

    @property
    def tables(self) -> Mapping[str, Any]:
        """Its config as it is written: the environment's code need not be here.

        Raises:
            CheckpointError: it cannot be read.
        """
        return self._kept("config.toml", lambda _: self.run.tables)

    @property
    def lines(self) -> Sequence[Line]:
        """Of metrics.jsonl; none yet, where there is none."""
        if not (self.folder / "metrics.jsonl").is_file():
            return []
        return self._kept("metrics.jsonl", lambda _: self.run.metrics())

    @property
    def about(self) -> Mapping[str, Any]:
        """What about.json says; nothing, where it cannot be read."""
        with suppress(CheckpointError):
            return self._kept("about.json", lambda _: self.run.about())
        return {}

    @property
    def roles(self) -> Mapping[str, str]:
        """The policy of each role."""
        return self.tables["team"]

    @property
    def policies(self) -> list[str]:
        """Their names, in the order of roles."""
        return list(dict.fromkeys(self.roles.values()))

    @property
    def title(self) -> str:
        """What plays what."""
        return title_of(self.tables)

    @property
    def steps(self) -> int:
        """The steps that it will have made."""
        return steps_of(self.lines, self.tables["train"])

    @property
    def step(self) -> int:
        """Where it is."""
        return int(max((line["step"] for line in self.lines), default=0))

    @property
    def last(self) -> dict[str, float]:
        """The latest value of each metric."""
        return latest_of(self.lines)

    @property
    def running(self) -> bool:
        """Whether a process holds it, as far as the system says."""
        with suppress(OSError, ValueError):
            lock = f":{(self.folder / 'lock').stat().st_ino}"
            held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            return any(words[1] == "FLOCK" and words[5].endswith(lock) for words in held)
        return False

    @property
    def wrong(self) -> list[Concern]:
        """What is wrong at its last step."""
        return concerns(self.lines, tuple(self.roles))

    @property
    def warnings(self) -> list[tuple[int, Concern]]:
        """Each with the step at which it arose."""
        lines = self.lines
        if self._seen != lines[: len(self._seen)] or not self._seen:
            self._watch, self._seen, self._warnings = Watch(tuple(self.roles)), (), []
        for line in lines[len(self._seen) :]:
            self._warnings += [(int(line["step"]), concern) for concern in self._watch.see(line)]
        self._seen = lines
        return self._warnings

    def rollout(self, step: int) -> list[Played]:
        """A saved rollout.

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
        """What its latest checkpoint holds beside weights; None: there is no checkpoint."""
        steps = self.run.checkpoints.steps()
        if not steps:
            return None
        name = str(self.run.checkpoints.path(steps[-1]).relative_to(self.folder) / "progress.json")
        return self._kept(name, lambda file: PROGRESS.validate_json(content(file, LARGEST_PROGRESS)))

    @property
    def words(self) -> Words:
        """Of each policy whose tokenizer lies in a checkpoint, the text of a token."""
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
    """The runs to look at.

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
        """All runs that are there now, the latest first."""
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
        """The run at an address."""
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
    """A name as a part of an address, that no other has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    names = (plain if number == 1 else f"{plain}-{number}" for number in range(1, len(taken) + 3))
    return next(name for name in names if name not in taken)


def stamp_of(file: Path) -> Stamp:
    """What changes when a file does."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0, 0, 0
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def identity_of(folder: Path) -> Identity:
    """The identity of the run in a folder."""
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
