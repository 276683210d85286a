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
    """Receives the metrics of a run, line by line. Subclasses implement `log` and override other methods if needed.

    config: the settings in the tracker's table.
    """

    options: ClassVar[type[Settings]] = Settings
    """Its settings: a subclass of Settings, where it has any."""

    def __init__(self, config: Settings | None = None) -> None:
        """Without a config, the defaults of its options."""
        self.config = self.options() if config is None else config

    def ready(self) -> None:
        """Raises ConfigError if the tracker cannot work on this machine; called before anything is loaded."""

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Called when a run begins or is resumed.

        Args:
            folder: the run folder.
            tables: the full config of the run.
            lines: the metrics of the earlier steps, if the run is resumed.
        """

    def log(self, line: Line) -> None:
        """One step's metrics."""
        raise NotImplementedError

    def end(self) -> None:
        """Called when the run has ended or was stopped."""
