"""Published programming problems: the benchmarks, and how a row becomes a problem; see `published/data.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from coterie.environments.published.data import LONGEST_REASON, Benchmark, Reader
from coterie.environments.published.sources import Row
from coterie.kernel.safe import one_line
from coterie_worlds.coding.problems import Problem, golds
from coterie_worlds.coding.problems.formats import format_of
from coterie_worlds.coding.problems.mutate import mutations
from coterie_worlds.sandbox import Box

MUTANTS = 4
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
"""Benchmarks by name. Sources: the sets' own cards; APPS in the conversion that needs no script."""


@dataclass(frozen=True)
class Problems(Reader[Problem]):
    """A reader of rows as problems.

    functions: problems alone that ask for a function, not for a whole program. libraries: packages that programs may
    import. box: where each row's own solution is tried; None: none is tried.
    """

    functions: bool = False
    libraries: tuple[str, ...] = ()
    box: Box | None = None
    benchmarks: ClassVar[Mapping[str, Benchmark]] = BENCHMARKS

    def format_of(self, row: Row, where: str) -> Callable[[Row], Problem]:
        """Returns a function that reads rows with these columns. Raises ConfigError: it knows no such columns."""
        return format_of(row, where)

    def unfit(self, item: Problem) -> str:
        """Returns why a problem is unfit, if so: no hidden test, the wrong sort, or packages that are not there."""
        if not (item.cases or item.check):
            return "with no hidden test"
        if self.functions and not item.name:
            return "with a whole program, where a function is asked for"
        if missing := set(item.libraries) - set(self.libraries):
            names = one_line(", ".join(sorted(missing)))[:LONGEST_REASON]
            return f"with packages that environment.libraries does not name: {names}"
        return ""

    def words(self, item: Problem) -> tuple[str, str]:
        """Returns the function's name and the statement, which tell two items apart."""
        return item.name, item.text

    def content(self, item: Problem) -> list[Any]:
        """Returns the statement and the tests."""
        return [item.name, item.text, item.cases, item.check, item.preamble]

    def failing(self, items: Sequence[Problem]) -> tuple[str, Mapping[int, str]]:
        """Returns why no solution was tried, or nothing; and the items whose own solution fails their tests."""
        untried, wrong = golds.failing(items, self.box) if self.box else ("", {})
        return untried, {at: f"with a solution that fails its tests: {how}" for at, how in wrong.items()}

    def finished(self, item: Problem) -> Problem:
        """Returns a problem with programs that nearly solve it, and with what memory looks up."""
        return replace(item, query=item.text, mutants=tuple(islice(mutations(item.solution), MUTANTS)))
