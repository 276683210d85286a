"""What the programming tasks share: where problems come from, and the sandbox their programs run in."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from coterie import sandbox
from coterie.environment import Environment, Split
from coterie.problems import Problem, embedded, files
from coterie.sandbox import Backend, Box
from coterie.scene import JSON

TOTAL_S = 45.0
"""What all tests of a program may take together: less than the default of `engine.call_timeout_s`."""


class ProgrammingTask(Environment):
    """Problems and a sandbox."""

    starter: ClassVar[str] = "starter-code"

    data: str = ""
    """Problems: a .jsonl or .parquet file, or a Hugging Face dataset's id; none: embedded ones."""
    sandbox: Backend = "bubblewrap"
    """What isolates programs; process is weaker: it limits resources, and hides neither files nor network."""
    time_s: float = Field(2.0, gt=0, le=10)
    """Seconds that one test may take; after three that took longer, a program is not tried again."""
    memory_mb: int = Field(512, ge=64)
    """Memory of a program."""
    libraries: tuple[str, ...] = ()
    """Packages that programs may import beside the standard library."""
    max_tokens: int = Field(96, ge=4)
    """Tokens of one reply; one that is cut counts as empty."""

    @property
    def box(self) -> JSON:
        """The sandbox's settings, as `scene.call` takes them."""
        return self._box().json()

    def _box(self) -> Box:
        return Box(self.sandbox, self.time_s, TOTAL_S, memory_mb=self.memory_mb, libraries=self.libraries)

    def ready(self) -> None:
        """Raises ConfigError: programs cannot be isolated here as asked."""
        sandbox.check(self._box())

    def isolation(self) -> str:
        """How model-written code is kept apart."""
        return self.sandbox

    def task(self, split: Split, index: int) -> Problem:
        """The problem at a place of a split."""
        return files.problems(self.data, split)[index] if self.data else embedded.problem(split, index)

    def count(self, split: Split) -> int | None:
        """How many problems a split of the data holds; embedded ones to train on are unlimited."""
        if self.data:
            return len(files.problems(self.data, split))
        return None if split == "train" else len(embedded.chains(split))


LONGEST_QUOTE = 600
"""Characters of what somebody wrote that a prompt shows."""


def quote(text: str) -> str:
    """What a role or a program wrote, bounded."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]} …"
