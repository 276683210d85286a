"""Settings of environments that run model-written programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from coterie.kernel.environment import Environment
from coterie.kernel.scene import JSON

if TYPE_CHECKING:
    from coterie_worlds.sandbox import Box

Backend = Literal["bubblewrap", "process"]


class RunsPrograms(Environment):
    """An environment that can run model-written programs in a sandbox."""

    sandbox: Backend = "bubblewrap"
    """Isolation of programs. bubblewrap: a sandbox. process: none; a program can use your files, processes
    and network."""
    time_s: float = Field(default=2.0, gt=0, le=60)
    """Limit of CPU time per test, in seconds. The wall-clock limit is four times this, plus ten times the CPU time that
    the test uses. After three time-outs the other tests of the program are not run."""
    memory_mb: int = Field(default=512, ge=64)
    """Memory limit of a program in MiB, including the stacks of its threads."""

    @property
    def box(self) -> JSON:
        """The sandbox's settings, as `scene.call` takes them."""
        return self.limits().json()

    def limits(self) -> Box:
        """Returns the sandbox's settings."""
        from coterie_worlds.sandbox import Box

        return Box(self.sandbox, time_s=self.time_s, memory_mb=self.memory_mb)

    def runs_programs(self) -> bool:
        """Returns True if these settings run any programs."""
        return True

    def ready(self) -> None:
        """Raises ConfigError: programs cannot be isolated here as asked."""
        if self.runs_programs():
            from coterie_worlds.sandbox import check

            check(self.limits())

    def isolation(self) -> str:
        """Returns the sandbox and its level of isolation, in words; nothing if no programs run."""
        if not self.runs_programs():
            return ""
        if self.sandbox != "bubblewrap":
            return self.sandbox
        from coterie_worlds.sandbox import level

        return f"{self.sandbox}; {level()}"

    def remarks(self) -> tuple[str, ...]:
        """Returns a warning if nothing keeps programs apart."""
        bare = "environment.sandbox = 'process': programs have your files, processes and network"
        return (bare,) if self.runs_programs() and self.sandbox == "process" else ()
