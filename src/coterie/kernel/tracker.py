"""The base class of trackers. A tracker receives the metrics of a run in addition to metrics.jsonl.

To add a tracker, write a class and add a line to `registry.py`, or name your own class as `FILE.py:Class`. A config
has one table per tracker, `[trackers.NAME]`, with the settings of its `options`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from coterie.kernel.environment import Settings

Line = Mapping[str, float]
"""Metrics of one step by name; docs/metrics.md explains the names. One of them is "step"."""


class Tracker:
    """A receiver of a run's metrics, line by line. Subclasses implement `log` and override other methods if needed.

    config: the settings in the tracker's table.
    """

    options: ClassVar[type[Settings]] = Settings
    """The class of the settings. A tracker with settings uses a subclass of Settings."""
    local: ClassVar[bool] = False
    """True: nothing leaves this machine, whatever the settings are."""

    def __init__(self, config: Settings | None = None) -> None:
        """Creates the tracker. Without a config, it uses the defaults of `options`."""
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
        """Receives the metrics of one step."""
        raise NotImplementedError

    def end(self) -> None:
        """Called when the run has ended or was stopped."""
