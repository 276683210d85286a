"""Settings of environments that run programs which a model wrote."""

from __future__ import annotations

from pydantic import Field

from coterie import sandbox
from coterie.kernel.environment import Environment
from coterie.kernel.scene import JSON
from coterie.sandbox import Backend, Box


class RunsPrograms(Environment):
    """An environment with a sandbox."""

    sandbox: Backend = "bubblewrap"
    """What isolates programs; process is no wall: a program has its user's files, processes and network."""
    time_s: float = Field(default=2.0, gt=0, le=60)
    """Seconds of CPU time that one test may take. By the clock it has four times that, and ten times the CPU time that
    it takes on top; after three that took longer, a program is not tried again."""
    memory_mb: int = Field(default=512, ge=64)
    """Memory of a program, the stacks of its threads included."""

    @property
    def box(self) -> JSON:
        """The sandbox's settings, as `scene.call` takes them."""
        return self.limits().json()

    def limits(self) -> Box:
        """The sandbox's settings."""
        return Box(self.sandbox, time_s=self.time_s, memory_mb=self.memory_mb)

    def runs_programs(self) -> bool:
        """Whether these settings run any."""
        return True

    def ready(self) -> None:
        """Raises ConfigError: programs cannot be isolated here as asked."""
        if self.runs_programs():
            sandbox.check(self.limits())

    def isolation(self) -> str:
        """How model-written code is kept apart."""
        if not self.runs_programs():
            return ""
        return f"{self.sandbox}; {sandbox.level()}" if self.sandbox == "bubblewrap" else self.sandbox

    def remarks(self) -> tuple[str, ...]:
        """Where nothing keeps programs apart."""
        bare = "environment.sandbox = 'process': programs have your files, processes and network"
        return (bare,) if self.runs_programs() and self.sandbox == "process" else ()
