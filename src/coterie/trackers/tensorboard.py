"""TensorBoard, by tensorboardX: see it with `tensorboard --logdir RUN/tensorboard`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.kernel.tracker import Line
from coterie.trackers import Other, as_trl


class TensorBoard(Other):
    """Event files for TensorBoard, in the run's folder."""

    local = True
    extra = "tensorboard"
    package = "tensorboardX"

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Writes anew what was logged before: of two files, TensorBoard would show what was rewound too."""
        home = folder / "tensorboard"
        shutil.rmtree(home, ignore_errors=True)
        self._writer = self.library().SummaryWriter(str(home))
        self._writer.add_text("config", f"```json\n{json.dumps(tables, indent=2)}\n```")
        for line in lines:
            self.log(line)

    def log(self, line: Line) -> None:
        """Writes a scalar for each metric."""
        for name, value in as_trl(line).items():
            self._writer.add_scalar(name, value, int(line["step"]))
        self._writer.flush()

    def end(self) -> None:
        """Closes the file."""
        self._writer.close()
