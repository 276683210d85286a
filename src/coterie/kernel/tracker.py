"""What a tracker is: where a run's metrics go, beside metrics.jsonl.

A tracker is a class and a line in `registry.py`, or one of your own, named as `FILE.py:Class`. A config has a table for
each, `[trackers.NAME]`, with the settings that its `options` know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from coterie.kernel.environment import Settings

Line = Mapping[str, float]
"""Metrics of one step, by the names of docs/metrics.md; "step" is among them."""


class Tracker:
    """Takes a run's metrics, line by line. Subclasses write `log`, and what else they need.

    config: what its table says.
    """

    options: ClassVar[type[Settings]] = Settings
    """Its settings: a subclass of Settings, where it has any."""

    def __init__(self, config: Settings | None = None) -> None:
        """Without a config, the defaults of its options."""
        self.config = self.options() if config is None else config

    def ready(self) -> None:
        """Raises ConfigError where this machine lacks what it needs; asked before anything is loaded."""

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """A run begins, or goes on.

        Args:
            folder: the run's.
            tables: its whole config.
            lines: what was logged before, where it goes on.
        """

    def log(self, line: Line) -> None:
        """One step's metrics."""
        raise NotImplementedError

    def end(self) -> None:
        """The run is over, or was stopped."""
