"""Published data: the rows for training, the rows for testing, and the rows that are left out.

    load("rows.jsonl", reader)                      one source: a file is split by content, 80 : 10 : 10
    load("hub:openai/gsm8k#main", reader)           splits that were published are kept
    load("gsm8k.jsonl -> math500.jsonl", reader)    trained on the one, tested on all of the other
    load("gsm8k", reader)                           a benchmark of the reader's table: the same, by name

The name of a published split can mislead ("train" of CoopHumanEval is its test set), so a benchmark states the purpose
of each source. A row is left out, and counted by reason, if it cannot be scored, if its own answer is not right, or if
a test set contains the same or nearly the same words (13-word shingles, Jaccard 0.5). A `Reader` parses rows; there is
one for programming problems, one for questions and one for texts.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Generic, Literal, TypeVar

from coterie.environments.published.sources import BLOCK, Row, Source, source_of
from coterie.errors import ConfigError, nearest
from coterie.kernel.environment import SPLITS, Split, Task, split_of
from coterie.kernel.episode import clean
from coterie.kernel.safe import one_line

ARROW = "->"
PIECE = 100
"""Characters that are normalised at once."""
LONGEST_REASON = 200
"""Maximum characters of a row's own text in the reason why it is passed over."""
MOST_REASONS = 20
"""Maximum number of reasons that are shown for a source."""
MOST_PASSED_OVER = 0.2
"""Share of a source's rows that may not be scored: above it the data is not what it is taken for."""
SHINGLE = 13
"""Words of a shingle."""
MOST_HOLDERS = 50
"""Maximum number of items that a shingle is known of."""
ALIKE = 0.5
"""Jaccard similarity from which on two texts are the same problem."""
PUBLISHED: dict[str, Split] = {
    "train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test",
}  # fmt: skip
"""Names of published splits, and the splits that they mean."""
Use = Literal["train", "validation", "test", "all"]
"""Purpose of a source; all: its rows are split."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A training set and an official test set."""

    train: str
    test: str
    validation: str = ""


T = TypeVar("T", bound=Task)


class Unfit(ValueError):
    """A row that is not what a reader reads, in words for whoever wrote it."""


class Reader(Generic[T]):
    """A reader that makes tasks of rows. One equal to another reads the same: what was loaded is kept by reader.

    benchmarks: by name.
    """

    benchmarks: ClassVar[Mapping[str, Benchmark]]

    def format_of(self, row: Row, where: str) -> Callable[[Row], T]:
        """Returns a function that reads a source's rows, told by the first. Raises ConfigError: unknown columns."""
        raise NotImplementedError

    def unfit(self, item: T) -> str:
        """Returns why an item cannot be used, as in "with no hidden test"; else nothing."""
        return ""

    def words(self, item: T) -> tuple[str, str]:
        """Returns what tells two items apart: a name, or nothing, and a text."""
        raise NotImplementedError

    def content(self, item: T) -> list[Any]:
        """Returns all of an item that anything measured on it depends on, as JSON."""
        raise NotImplementedError

    def failing(self, items: Sequence[T]) -> tuple[str, Mapping[int, str]]:
        """Returns why no item's own answer was tried, or nothing; and how those fail that do, by place."""
        return "", {}

    def finished(self, item: T) -> T:
        """Returns an item that is kept, in the form in which it is played."""
        return item


def told_by(
    formats: Mapping[tuple[str, ...], tuple[str, Callable[[Row], T]]], row: Row, where: str
) -> Callable[[Row], T]:
    """Returns the function that reads rows of these columns.

    Args:
        formats: by columns that a row must have, the first that fits: what it is called, and what reads it.

    Raises:
        ConfigError: none fits.
    """
    for columns, (_, build) in formats.items():
        if set(columns) <= row.keys():
            return build
    wanted = "; or ".join(f"{', '.join(columns)} ({name})" for columns, (name, _) in reversed(list(formats.items())))
    if BLOCK in row and len(row) == 1:
        raise ConfigError(
            f"{where}: a .txt file holds levels, as those of sokoban; give rows that have the columns {wanted}"
        )
    its = ", ".join(sorted(row))[:LONGEST_REASON] or "none"
    raise ConfigError(f"{where}: its columns are {its}; a row needs {wanted}")


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """A row that can be used: its source, its place there, and the item that it was read as, whose split is decided."""

    source: str
    where: str
    item: T


@dataclass(frozen=True, slots=True)
class Data(Generic[T]):
    """Items, ready to be played.

    splits: by split, in the order of their sources. rows: of each source. lost: rows that cannot be used, by source:
    where, and why. left: rows that are there already: where, and as what. untried: why no answer was tried.
    """

    reader: Reader[T]
    splits: Mapping[Split, tuple[T, ...]]
    rows: Mapping[str, int]
    lost: Mapping[str, Sequence[tuple[str, str]]]
    left: Sequence[tuple[str, str]] = ()
    untried: str = ""

    def digest(self, split: Split) -> str:
        """Returns a digest of the content of a split, the start of a SHA-256."""
        whole = [self.reader.content(item) for item in self.splits[split]]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]

    def remarks(self) -> tuple[str, ...]:
        """Returns what a person should know of the data, a line each."""
        sizes = ", ".join(f"{split} {len(its)} ({self.digest(split)})" for split, its in self.splits.items() if its)
        lost = [
            f"{name}: {len(reasons)} of {self.rows[name]} rows are passed over: {_by_reason(reasons)}"
            for name, reasons in self.lost.items()
            if reasons
        ]
        left = [f"{len(self.left)} rows are left out: {_by_reason(self.left)}"] if self.left else []
        untried = [f"the rows' own answers are not tried: {self.untried}"] if self.untried else []
        return tuple(f"environment.data: {line}" for line in (sizes, *lost, *left, *untried))

    def summary(self) -> dict[str, Any]:
        """Returns all of the data but its items, as JSON."""
        return {
            "sources": dict(self.rows),
            "splits": {
                split: {"problems": len(items), "sha256": self.digest(split)} for split, items in self.splits.items()
            },
            "passed_over": {
                name: [list(reason) for reason in reasons] for name, reasons in self.lost.items() if reasons
            },
            "left_out": [list(reason) for reason in self.left],
            "untried": self.untried,
        }

    def page(self) -> str:
        """Returns the summary of the data as a page for a person."""
        lines = [f"{rows:>7} rows   {name}" for name, rows in self.rows.items()]
        lines += [f"{len(items):>7} {split:<10} sha256 {self.digest(split)}" for split, items in self.splits.items()]
        for title, reasons in (*(("passed over", rows) for rows in self.lost.values()), ("left out", self.left)):
            for reason, count in Counter(reason for _, reason in reasons).most_common(MOST_REASONS):
                where = next(where for where, its in reasons if its == reason)
                lines.append(f"{count:>7} {title:<11} {reason}; such as {where.removeprefix('environment.data: ')}")
        lines += [
            f"{split}: nothing; give more rows, or TRAIN {ARROW} TEST"
            for split, items in self.splits.items()
            if not items
        ]
        return "\n".join([*lines, *([f"the rows' own answers are not tried: {self.untried}"] if self.untried else [])])


def _by_reason(passed_over: Iterable[tuple[str, str]]) -> str:
    return ", ".join(
        f"{count} {reason}" for reason, count in Counter(reason.partition(":")[0] for _, reason in passed_over).items()
    )


@lru_cache(maxsize=8)
def load(data: str, reader: Reader[T]) -> Data[T]:
    """Loads the data that a setting `environment.data` names.

    Raises:
        ConfigError: nothing of that name, no such file, or too many rows that cannot be used; names the row.
    """
    rows: dict[str, int] = {}
    lost: dict[str, list[tuple[str, str]]] = {}
    placed: list[Placed[T]] = []
    for number, (use, source) in enumerate(_sources(data, reader.benchmarks)):
        kept: list[tuple[str, int, T]] = []
        bad = lost.setdefault(source.text, [])
        for published, at, item in _read(source, reader):
            if isinstance(item, str):
                bad.append((source.place(published, at), item))
            else:
                kept.append((published, at, item))
        rows[source.text] = rows.get(source.text, 0) + len(kept) + len(bad)
        if not kept and not bad:
            raise ConfigError(f"environment.data: {source.text} has no rows")
        assign = _assignment(use, source, {published for published, _, _ in kept}, reader)
        for published, at, item in kept:
            if split := assign(published, item):
                name = f"{'t' * number}{published}{at}"
                named = replace(item, split=split, id=f"{name}-{item.id}" if item.id else name)
                placed.append(Placed(source.text, source.place(published, at), named))
        _refuse_many(bad, rows[source.text])
    placed, left = _once(placed, reader)
    untried, wrong = reader.failing([row.item for row in placed])
    for at in sorted(wrong):
        lost[placed[at].source].append((placed[at].where, wrong[at]))
    for name, bad in lost.items():
        _refuse_many(bad, rows[name])
    placed = [row for at, row in enumerate(placed) if at not in wrong]
    splits: dict[Split, tuple[T, ...]] = {
        split: tuple(reader.finished(row.item) for row in placed if row.item.split == split) for split in SPLITS
    }
    return Data(reader, splits, rows, lost, left, untried)


def named(data: str, benchmarks: Mapping[str, Benchmark]) -> str:
    """Returns a benchmark's sources, as they could be written; anything else as it is."""
    entry = benchmarks.get(data)
    return f"{entry.train} {ARROW} {entry.test}" if entry else data


def held_out(data: str, benchmarks: Mapping[str, Benchmark]) -> str:
    """Returns a setting for the test data alone: all of a single source, or what stands behind the arrow."""
    return f"{ARROW} {named(data, benchmarks).rpartition(ARROW)[2].strip()}"


def shared(left: Iterable[T], other: Iterable[T], reader: Reader[T]) -> int:
    """Returns the number of items of one collection that are in the other too."""
    there = Alike(map(reader.words, other))
    return sum(there.has(reader.words(item)) for item in left)


def known(tested: Data[T], trained: Data[T] | None) -> tuple[str, ...]:
    """Returns a remark on how much of a run's test data was trained on; nothing if that is none."""
    test = tested.splits["test"]
    count = shared(test, trained.splits["train"], tested.reader) if trained else 0
    return (f"{count} of these {len(test)} test problems are in what the run was trained on",) if count else ()


def _sources(data: str, benchmarks: Mapping[str, Benchmark]) -> list[tuple[Use, Source]]:
    """Returns the sources that a setting names, each with its purpose."""
    if entry := benchmarks.get(data):
        uses: list[tuple[Use, str]] = [("train", entry.train), ("validation", entry.validation), ("test", entry.test)]
    elif ARROW in data:
        train, _, test = data.partition(ARROW)
        uses = [("train", train.strip()), ("test", test.strip())]
        if ARROW in test:
            raise ConfigError(f"environment.data: '{data}' has two arrows; write TRAIN {ARROW} TEST")
        if not uses[1][1]:
            raise ConfigError(
                f"environment.data: nothing stands behind the {ARROW} of '{data}': write what is tested on"
            )
    else:
        uses = [("all", data)]
    try:
        return [(use, source_of(text)) for use, text in uses if text]
    except ConfigError as error:
        hint = nearest(data.lower(), benchmarks) if data.isalnum() else ""
        names = f"; benchmarks by name: {', '.join(benchmarks)}" if benchmarks else ""
        raise ConfigError(f"{error}{hint}{names}") from error


def _read(source: Source, reader: Reader[T]) -> Iterator[tuple[str, int, T | str]]:
    """Yields the item of each row, or why it cannot be used, with its published split and its number."""
    build: Callable[[Row], T] | None = None
    for published, number, row in source.rows():
        if build is None:
            build = reader.format_of(row, source.place(published, number))
        yield published, number, _built(build, row, reader)


def _built(build: Callable[[Row], T], row: Row, reader: Reader[T]) -> T | str:
    """Returns the item that a row is read as, or why it cannot be used."""
    try:
        item = build(row)
    except Exception as error:  # of a stranger's row: it may nest, be cut or be packed in any way
        said = {Unfit: f"{error}", KeyError: f"it has no {error}"}.get(type(error), f"{type(error).__name__}: {error}")
        return f"with not a problem: {one_line(said)[:LONGEST_REASON]}"
    if any(isinstance(text := getattr(item, field.name), str) and clean(text) != text for field in fields(item)):
        return "with a lone surrogate, which is no text"
    return reader.unfit(item) or replace(item, id=one_line(item.id)[:LONGEST_REASON])


def _refuse_many(lost: Sequence[tuple[str, str]], total: int) -> None:
    """Raises ConfigError if more rows cannot be scored than may be passed over."""
    if len(lost) > MOST_PASSED_OVER * total:
        where, reason = min(lost, key=lambda row: len(row[0]))
        advice = ": leave them out" if len(lost) < total else ""
        more = f"; {len(lost)} of {total} rows cannot be scored ({_by_reason(lost)}){advice}" if total > 1 else ""
        raise ConfigError(f"{where}: {reason.removeprefix('with ')}{more}")


def _assignment(use: Use, source: Source, published: set[str], reader: Reader[T]) -> Callable[[str, T], Split | None]:
    """Returns a function from a row to its split; None: to none, as the rows of a test set beside a training set."""
    named = published & PUBLISHED.keys()
    official = not source.split and len(named) > 1
    if use == "test":
        return lambda split, _: "test" if not official or PUBLISHED.get(split) == "test" else None
    if use == "validation":
        return lambda *_: "validation"
    validates = any(PUBLISHED[name] == "validation" for name in named)

    def assign(split: str, item: T) -> Split | None:
        content = split_of(reader.words(item))
        if not official:
            return "train" if use == "train" and content == "test" else content
        its = PUBLISHED.get(split)
        if its == "train" and not validates and content == "validation":
            return "validation"
        return None if use == "train" and its == "test" else its

    return assign


def _once(rows: Sequence[Placed[T]], reader: Reader[T]) -> tuple[list[Placed[T]], list[tuple[str, str]]]:
    """Returns every item once: in the test set, else in validation, else in training; and the rows left out."""
    kept: set[int] = set()
    left: list[tuple[str, str]] = []
    before: list[tuple[Split, Alike]] = []
    order: tuple[Split, ...] = ("test", "validation", "train")
    for split in order:
        seen: dict[str, tuple[str, str]] = {}
        for at, row in ((at, row) for at, row in enumerate(rows) if row.item.split == split):
            words = reader.words(row.item)
            there = next((name for name, alike in before if alike.has(words)), "")
            if there or key_of(words) in seen:
                left.append((row.where, f"as a {there} row" if there else f"twice in {split}"))
            else:
                seen[key_of(words)] = words
                kept.add(at)
        before.append((split, Alike(seen.values())))
    return [rows[at] for at in sorted(kept)], left


class Alike:
    """A collection of items, each a name and a text, that tells if another item is one of them.

    Words that many share, as a preamble, tell little: of each shingle the first `MOST_HOLDERS` items are known.
    """

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._keys: set[str] = set()
        self._sizes: list[int] = []
        self._with: dict[str, list[int]] = {}
        for words in items:
            self._keys.add(key_of(words))
            mine = shingles(words[1])
            for shingle in mine:
                holders = self._with.setdefault(shingle, [])
                if len(holders) < MOST_HOLDERS:
                    holders.append(len(self._sizes))
            self._sizes.append(len(mine))

    def has(self, words: tuple[str, str]) -> bool:
        """Returns True if an item is there, in the same words or nearly."""
        if key_of(words) in self._keys:
            return True
        mine = shingles(words[1])
        common = Counter(at for shingle in mine for at in self._with.get(shingle, ()))
        return any(count >= ALIKE * (len(mine) + self._sizes[at] - count) for at, count in common.items())


def key_of(words: tuple[str, str]) -> str:
    """Returns an item's words and signs, without blanks: HumanEval/56 and 61 differ in their kind of bracket alone."""
    return "".join(_folded(" ".join(words)).split())


def shingles(text: str) -> set[str]:
    """Returns every thirteen words of a text that stand together; none of a shorter one."""
    words = re.findall(r"\w+", _folded(text))
    return {" ".join(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)}


def _folded(text: str) -> str:
    """Returns a text in one form, piece by piece: normalising takes the square of how many marks stand together."""
    words = text.split()
    if text.isascii() and max(map(len, words), default=0) <= PIECE:
        return " ".join(words).casefold()
    pieces = (word[at : at + PIECE] for word in words for at in range(0, len(word), PIECE))
    return " ".join(unicodedata.normalize("NFKC", piece).casefold() for piece in pieces)
