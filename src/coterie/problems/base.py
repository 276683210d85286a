"""What the programming tasks share: where problems come from, and the sandbox their programs run in."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from coterie import sandbox
from coterie.environment import Environment, Split
from coterie.problems import Problem, embedded, files
from coterie.sandbox import Backend, Box
from coterie.scene import JSON


class ProgrammingTask(Environment):
    """Problems and a sandbox."""

    starter: ClassVar[str] = "starter-code"
    functions: ClassVar[bool] = False
    """Whether problems must ask for a function; else whole programs are problems too."""

    data: str = ""
    """Problems: a .jsonl or .parquet file, or a Hugging Face dataset's id; none: embedded ones."""
    sandbox: Backend = "bubblewrap"
    """What isolates programs; process is no wall: a program has its user's files, processes and network."""
    time_s: float = Field(2.0, gt=0, le=60)
    """Seconds of CPU time that one test may take, four times that by the clock; after three that took longer, a
    program is not tried again."""
    total_s: float = Field(45.0, gt=0, le=600)
    """Seconds of CPU time that all tests of a program may take together, four times that by the clock."""
    memory_mb: int = Field(512, ge=64)
    """Memory of a program, the stacks of its threads included."""
    stdin_kb: int = Field(32 << 10, ge=1)
    """What a test may give a program to read, in KiB."""
    output_kb: int = Field(8 << 10, ge=1, le=256 << 10)
    """What a program may write in a test, or a function answer, in KiB."""
    libraries: tuple[str, ...] = ()
    """Packages that programs may import beside the standard library."""
    max_tokens: int = Field(96, ge=4)
    """Tokens of one reply; one that is cut counts as empty."""

    @property
    def box(self) -> JSON:
        """The sandbox's settings, as `scene.call` takes them."""
        return self._box().json()

    def _box(self) -> Box:
        limits = self.model_dump(include={"time_s", "total_s", "memory_mb", "stdin_kb", "output_kb"})
        return Box(self.sandbox, libraries=self.libraries, **limits)

    def ready(self) -> None:
        """Raises ConfigError: programs cannot be isolated here as asked."""
        sandbox.check(self._box())

    def isolation(self) -> str:
        """How model-written code is kept apart."""
        return f"{self.sandbox}; {sandbox.level()}" if self.sandbox == "bubblewrap" else self.sandbox

    def remarks(self) -> tuple[str, ...]:
        """Which rows of the data are passed over."""
        told = files.passed_over(self.data, functions=self.functions) if self.data else ""
        return (f"environment.data: {told}",) if told else ()

    def task(self, split: Split, index: int) -> Problem:
        """The problem at a place of a split."""
        if not self.data:
            return embedded.problem(split, index)
        return files.problems(self.data, split, functions=self.functions)[index]

    def count(self, split: Split) -> int | None:
        """How many problems a split of the data holds; embedded ones to train on are unlimited."""
        if self.data:
            return len(files.problems(self.data, split, functions=self.functions))
        return None if split == "train" else len(embedded.chains(split))


LONGEST_QUOTE = 600
"""Characters of what somebody wrote that a prompt shows."""


def quote(text: str) -> str:
    """What a role or a program wrote, bounded."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]} …"
