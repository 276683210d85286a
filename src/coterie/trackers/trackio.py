"""Trackio: its own database on this machine; see it with `trackio show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from coterie.kernel.environment import Settings
from coterie.kernel.tracker import Line
from coterie.trackers import Other, as_trl


class TrackioConfig(Settings):
    """Settings of the Trackio tracker, `[trackers.trackio]`."""

    project: str = "coterie"
    """Name of the Trackio project."""


class Trackio(Other):
    """Trackio, where it keeps its projects on this machine: trackio show --project coterie."""

    extra = "trackio"
    package = "trackio"

    options: ClassVar[type[Settings]] = TrackioConfig
    config: TrackioConfig

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Begins a run of Trackio's, named after the folder."""
        with redirect_stdout(StringIO()):  # it would write into the display
            self._run = self.library().init(
                project=self.config.project, name=folder.name, config=dict(tables), embed=False, auto_log_cpu=False,
                auto_log_gpu=False,
            )  # fmt: skip
        for line in lines:
            self.log(line)

    def log(self, line: Line) -> None:
        """Logs one step."""
        self._run.log(as_trl(line), step=int(line["step"]))

    def end(self) -> None:
        """Waits until all is written."""
        with redirect_stdout(StringIO()):
            self.library().finish()  # its run's own would be finished again, aloud, when Python ends
