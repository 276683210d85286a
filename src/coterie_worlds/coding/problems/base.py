"""The base class of the programming tasks: the source of problems, and the sandbox that runs programs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from coterie.environments.published.plays import PlaysData
from coterie.kernel.environment import Split
from coterie_worlds.coding.problems import LONGEST_SHOWN, Problem, embedded
from coterie_worlds.coding.problems.data import Problems
from coterie_worlds.programs import RunsPrograms
from coterie_worlds.sandbox import Box


class ProgrammingTask(PlaysData, RunsPrograms):
    """A programming task: problems, and a sandbox that runs programs."""

    starter: ClassVar[str] = "starter-code"
    functions: ClassVar[bool] = False
    """True if problems must ask for a function; else whole programs are problems too."""

    data: str = ""
    """Problems: a .jsonl, .json, .csv or .parquet file, hub:owner/name@revision#config/split, TRAIN -> TEST of two such
    sources, or the name of a benchmark (see `coterie data`). Empty: embedded problems."""
    check_solutions: bool = True
    """Run each row's own solution on its tests before use, and skip rows whose solution fails."""
    total_s: float = Field(default=45.0, gt=0, le=600)
    """Limit of CPU time for all tests of a program together, in seconds. The wall-clock limit is larger by the factors
    that `time_s` describes."""
    stdin_kb: int = Field(default=32 << 10, ge=1)
    """Maximum standard input of a test, in KiB."""
    output_kb: int = Field(default=8 << 10, ge=1, le=256 << 10)
    """Maximum output of a program, or return value of a function, per test, in KiB."""
    libraries: tuple[str, ...] = ()
    """Packages that programs may import in addition to the standard library."""
    max_tokens: int = Field(default=96, ge=4)
    """Maximum tokens per reply. A reply that is cut off counts as empty."""

    def limits(self) -> Box:
        """Returns the sandbox's settings."""
        limits = self.model_dump(include={"time_s", "total_s", "memory_mb", "stdin_kb", "output_kb"})
        return Box(self.sandbox, libraries=self.libraries, **limits)

    def reader(self) -> Problems:
        """Returns a reader of programming problems."""
        return Problems(self.functions, self.libraries, self.limits() if self.check_solutions else None)

    def drawn(self, split: Split, index: int) -> Problem:
        """Returns the embedded problem at a place of a split."""
        return embedded.problem(split, index)

    def count(self, split: Split) -> int | None:
        """Returns the number of problems in a split; None for embedded ones to train on, which are unlimited."""
        return super().count(split) if self.data or split == "train" else len(embedded.chains(split))

    def inert(self) -> dict[str, str]:
        """Returns `check_solutions` as without effect on embedded problems, whose solutions are right."""
        return {} if self.data else {"check_solutions": "embedded problems are right"}


def quote(text: str) -> str:
    """Returns a text of a role or a program, cut to LONGEST_SHOWN characters."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} …"
