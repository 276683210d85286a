"""Data as published: what is trained on, what is tested on, and what of it is left out.

    problems("rows.jsonl", "train")                     one source: a file is split by content, 80 : 10 : 10
    problems("hub:google-research-datasets/mbpp", …)    splits that were published are kept
    problems("mbpp.jsonl -> humaneval.jsonl", …)        trained on the one, tested on all of the other
    problems("humaneval", …)                            a benchmark of the table below: the same, by name

What a split is called says little about it ("train" of CoopHumanEval is its test set), so a benchmark says what each
source is for. A row is left out, and counted by reason, where it cannot be scored, where its own solution fails its
tests, and where it is in a test set too: as the same words, or nearly (13-word shingles, Jaccard 0.5).
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

from coterie.environments.coding.problems import Problem, golds
from coterie.environments.coding.problems.formats import LONGEST_REASON, Row, Unfit, format_of
from coterie.environments.coding.problems.mutate import mutations
from coterie.environments.coding.problems.sources import Source, source_of
from coterie.errors import ConfigError, nearest
from coterie.kernel.environment import SPLITS, Split, split_of
from coterie.kernel.safe import one_line
from coterie.sandbox import Box

ARROW = "->"
MUTANTS = 4
PIECE = 100
"""Characters that are normalised at once."""
MOST_REASONS = 20
"""That are shown for a source."""
MOST_PASSED_OVER = 0.2
"""Share of a source's rows that may not be scored: above it the data is not what it is taken for."""
SHINGLE = 13
"""Words of a shingle."""
ALIKE = 0.5
"""Jaccard similarity from which on two texts are the same problem."""
PUBLISHED: dict[str, Split] = {
    "train": "train", "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test",
}  # fmt: skip
"""What published splits are called."""
Use = Literal["train", "validation", "test", "all"]
"""What a source is for; all: its rows are split."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A training set and an official test set."""

    train: str
    test: str
    validation: str = ""


MBPP = "hub:google-research-datasets/mbpp#full"
APPS = "hub:codeparrot/apps@refs/pr/5#all"
BENCHMARKS = {
    "humaneval": Benchmark(f"{MBPP}/train", "hub:openai/openai_humaneval#openai_humaneval/test"),
    "coophumaneval": Benchmark(f"{MBPP}/train", "hub:OpenMLRL/CoopHumanEval#default/train"),
    "mbpp": Benchmark(f"{MBPP}/train", f"{MBPP}/test", f"{MBPP}/validation"),
    "apps": Benchmark(f"{APPS}/train", f"{APPS}/test"),
    "codecontests": Benchmark(*(f"hub:deepmind/code_contests#default/{name}" for name in ("train", "test", "valid"))),
    "livecodebench": Benchmark("hub:BAAI/TACO#ALL/train", "hub:lighteval/code_generation_lite#v6/test"),
    "bigcodebench": Benchmark(f"{MBPP}/train", "hub:bigcode/bigcodebench#default/v0.1.4"),
}
"""By name. Sources: the sets' own cards; APPS in the conversion that needs no script."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A row that could be scored: of which source, where there, and its problem, whose split is decided."""

    source: str
    where: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Data:
    """Problems, ready to be played.

    splits: by split, in the order of their sources. rows: of each source. lost: rows that cannot be scored, by source:
    where, and why. left: rows that are there already: where, and as what. untried: why no solution was tried.
    """

    splits: Mapping[Split, tuple[Problem, ...]]
    rows: Mapping[str, int]
    lost: Mapping[str, Sequence[tuple[str, str]]]
    left: Sequence[tuple[str, str]] = ()
    untried: str = ""

    def digest(self, split: Split) -> str:
        """The content of a split, as the start of a SHA-256."""
        whole = [
            [problem.name, problem.text, problem.cases, problem.check, problem.preamble]
            for problem in self.splits[split]
        ]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]

    def remarks(self) -> tuple[str, ...]:
        """What a person should know of it, a line each."""
        sizes = ", ".join(f"{split} {len(its)} ({self.digest(split)})" for split, its in self.splits.items() if its)
        lost = [
            f"{name}: {len(reasons)} of {self.rows[name]} rows are passed over: {_by_reason(reasons)}"
            for name, reasons in self.lost.items()
            if reasons
        ]
        left = [f"{len(self.left)} rows are left out: {_by_reason(self.left)}"] if self.left else []
        untried = [f"the rows' own solutions are not tried: {self.untried}"] if self.untried else []
        return tuple(f"environment.data: {line}" for line in (sizes, *lost, *left, *untried))

    def summary(self) -> dict[str, Any]:
        """All of it but the problems, as JSON."""
        return {
            "sources": dict(self.rows),
            "splits": {
                split: {"problems": len(problems), "sha256": self.digest(split)}
                for split, problems in self.splits.items()
            },
            "passed_over": {
                name: [list(reason) for reason in reasons] for name, reasons in self.lost.items() if reasons
            },
            "left_out": [list(reason) for reason in self.left],
            "untried": self.untried,
        }

    def page(self) -> str:
        """The same for a person."""
        lines = [f"{rows:>7} rows   {name}" for name, rows in self.rows.items()]
        lines += [
            f"{len(problems):>7} {split:<10} sha256 {self.digest(split)}" for split, problems in self.splits.items()
        ]
        for title, reasons in (*(("passed over", rows) for rows in self.lost.values()), ("left out", self.left)):
            for reason, count in Counter(reason for _, reason in reasons).most_common(MOST_REASONS):
                where = next(where for where, its in reasons if its == reason)
                lines.append(f"{count:>7} {title:<11} {reason}; such as {where.removeprefix('environment.data: ')}")
        return "\n".join(
            [*lines, *([f"the rows' own solutions are not tried: {self.untried}"] if self.untried else [])]
        )


def _by_reason(passed_over: Iterable[tuple[str, str]]) -> str:
    return ", ".join(
        f"{count} {reason}" for reason, count in Counter(reason.partition(":")[0] for _, reason in passed_over).items()
    )


def problems(data: str, split: Split, *, functions: bool = False) -> tuple[Problem, ...]:
    """The problems of a split; see `load`."""
    return load(data, functions=functions).splits[split]


@lru_cache(maxsize=8)
def load(data: str, *, functions: bool = False, libraries: tuple[str, ...] = (), box: Box | None = None) -> Data:
    """What a setting `environment.data` stands for.

    Args:
        functions: problems alone that ask for a function, not for a whole program.
        libraries: packages that programs may import.
        box: where each row's own solution is tried; None: none is tried.

    Raises:
        ConfigError: nothing of that name, no such file, or too many rows that cannot be scored; names the row.
    """
    rows: dict[str, int] = {}
    lost: dict[str, list[tuple[str, str]]] = {}
    placed: list[Placed] = []
    for number, (use, source) in enumerate(_sources(data)):
        kept: list[tuple[str, int, Problem]] = []
        bad = lost.setdefault(source.text, [])
        for published, at, problem in _scored(source, functions, libraries):
            if isinstance(problem, str):
                bad.append((source.place(published, at), problem))
            else:
                kept.append((published, at, problem))
        rows[source.text] = rows.get(source.text, 0) + len(kept) + len(bad)
        if not kept and not bad:
            raise ConfigError(f"environment.data: {source.text} has no rows")
        assign = _assignment(use, source, {published for published, _, _ in kept})
        for published, at, problem in kept:
            if split := assign(published, problem):
                name = f"{'t' * number}{published}{at}"
                named = replace(problem, split=split, id=f"{name}-{problem.id}" if problem.id else name)
                placed.append(Placed(source.text, source.place(published, at), named))
        _refuse_many(bad, rows[source.text])
    placed, left = _once(placed)
    untried = ""
    if box is not None:
        untried, wrong = golds.failing([row.problem for row in placed], box)
        for at in sorted(wrong):
            lost[placed[at].source].append((placed[at].where, f"with a solution that fails its tests: {wrong[at]}"))
        for name, bad in lost.items():
            _refuse_many(bad, rows[name])
        placed = [row for at, row in enumerate(placed) if at not in wrong]
    splits: dict[Split, tuple[Problem, ...]] = {
        split: tuple(_with_mutants(row.problem) for row in placed if row.problem.split == split) for split in SPLITS
    }
    return Data(splits, rows, lost, left, untried)


def named(data: str) -> str:
    """A benchmark's sources, as they could be written; anything else as it is."""
    entry = BENCHMARKS.get(data)
    return f"{entry.train} {ARROW} {entry.test}" if entry else data


def held_out(data: str) -> str:
    """Of a setting, what is tested on, alone: all of a single source, or what stands behind the arrow."""
    return f"{ARROW} {named(data).rpartition(ARROW)[2].strip()}"


def shared(left: Iterable[Problem], other: Iterable[Problem]) -> int:
    """How many problems of one are in the other too."""
    alike = Alike(other)
    return sum(bool(alike.has(problem)) for problem in left)


def _sources(data: str) -> list[tuple[Use, Source]]:
    """What each source is for."""
    if entry := BENCHMARKS.get(data):
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
        hint = nearest(data, BENCHMARKS) if data.isalnum() else ""
        raise ConfigError(f"{error}{hint}; benchmarks by name: {', '.join(BENCHMARKS)}") from error


def _scored(source: Source, functions: bool, libraries: Sequence[str]) -> Iterator[tuple[str, int, Problem | str]]:
    """Each row's problem, or why it cannot be scored, with its published split and its number."""
    build: Callable[[Row], Problem] | None = None
    for published, number, row in source.rows():
        if build is None:
            build = format_of(row, source.place(published, number))
        yield published, number, _problem(build, row, functions, libraries)


def _problem(build: Callable[[Row], Problem], row: Row, functions: bool, libraries: Sequence[str]) -> Problem | str:
    """A row's problem, or why it cannot be scored."""
    try:
        problem = build(row)
    except Exception as error:  # of a stranger's row: it may nest, be cut or be packed in any way
        said = {Unfit: f"{error}", KeyError: f"it has no {error}"}.get(type(error), f"{type(error).__name__}: {error}")
        return f"with not a problem: {one_line(said)[:LONGEST_REASON]}"
    if not (problem.cases or problem.check):
        return "with no hidden test"
    if functions and not problem.name:
        return "with a whole program, where a function is asked for"
    if missing := set(problem.libraries) - set(libraries):
        names = one_line(", ".join(sorted(missing)))[:LONGEST_REASON]
        return f"with packages that environment.libraries does not name: {names}"
    return problem


def _refuse_many(lost: Sequence[tuple[str, str]], total: int) -> None:
    """Raises ConfigError where more rows cannot be scored than may be passed over."""
    if len(lost) > MOST_PASSED_OVER * total:
        where, reason = min(lost, key=lambda row: len(row[0]))
        advice = ": leave them out" if len(lost) < total else ""
        more = f"; {len(lost)} of {total} rows cannot be scored ({_by_reason(lost)}){advice}" if total > 1 else ""
        raise ConfigError(f"{where}: {reason.removeprefix('with ')}{more}")


def _assignment(use: Use, source: Source, published: set[str]) -> Callable[[str, Problem], Split | None]:
    """Which split a row belongs to; None: to none, as the rows of a test set beside a training set."""
    named = published & PUBLISHED.keys()
    official = not source.split and len(named) > 1
    if use == "test":
        return lambda split, _: "test" if not official or PUBLISHED.get(split) == "test" else None
    if use == "validation":
        return lambda *_: "validation"
    validates = any(PUBLISHED[name] == "validation" for name in named)

    def assign(split: str, problem: Problem) -> Split | None:
        content = split_of((problem.name, problem.text))
        if not official:
            return "train" if use == "train" and content == "test" else content
        its = PUBLISHED.get(split)
        if its == "train" and not validates and content == "validation":
            return "validation"
        return None if use == "train" and its == "test" else its

    return assign


def _once(rows: Sequence[Placed]) -> tuple[list[Placed], list[tuple[str, str]]]:
    """Every problem once: in the test set, else in validation, else in training; and the rows that are left out."""
    kept: set[int] = set()
    left: list[tuple[str, str]] = []
    before: list[tuple[Split, Alike]] = []
    order: tuple[Split, ...] = ("test", "validation", "train")
    for split in order:
        seen: dict[str, Problem] = {}
        for at, row in ((at, row) for at, row in enumerate(rows) if row.problem.split == split):
            there = next((name for name, alike in before if alike.has(row.problem)), "")
            if there or key_of(row.problem) in seen:
                left.append((row.where, f"as a {there} row" if there else f"twice in {split}"))
            else:
                seen[key_of(row.problem)] = row.problem
                kept.add(at)
        before.append((split, Alike(seen.values())))
    return [rows[at] for at in sorted(kept)], left


class Alike:
    """Problems by their words: whether another is one of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._keys: set[str] = set()
        self._sizes: list[int] = []
        self._with: dict[str, list[int]] = {}
        for problem in problems:
            self._keys.add(key_of(problem))
            mine = shingles(problem.text)
            for shingle in mine:
                self._with.setdefault(shingle, []).append(len(self._sizes))
            self._sizes.append(len(mine))

    def has(self, problem: Problem) -> bool:
        """Whether it is there, in the same words or nearly."""
        if key_of(problem) in self._keys:
            return True
        mine = shingles(problem.text)
        common = Counter(at for shingle in mine for at in self._with.get(shingle, ()))
        return any(count >= ALIKE * (len(mine) + self._sizes[at] - count) for at, count in common.items())


def key_of(problem: Problem) -> str:
    """A problem's words and signs, without blanks: HumanEval/56 and 61 differ in their kind of bracket alone."""
    return "".join(_folded(f"{problem.name} {problem.text}").split())


def shingles(text: str) -> set[str]:
    """Every thirteen words of a text that stand together; none of a shorter one."""
    words = re.findall(r"\w+", _folded(text))
    return {" ".join(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)}


def _folded(text: str) -> str:
    """A text in one form, piece by piece: normalising takes the square of how many marks stand together."""
    pieces = (word[at : at + PIECE] for word in text.split() for at in range(0, len(word), PIECE))
    return " ".join(unicodedata.normalize("NFKC", piece).casefold() for piece in pieces)


def _with_mutants(problem: Problem) -> Problem:
    """With programs that nearly solve it, and what memory looks up."""
    return replace(problem, query=problem.text, mutants=tuple(islice(mutations(problem.solution), MUTANTS)))
