"""Weights & Biases: offline unless `mode = "online"`, in the run's folder; `wandb sync` sends it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from coterie.kernel.environment import Settings
from coterie.kernel.tracker import Line
from coterie.trackers import Other, as_trl


class WandBConfig(Settings):
    """Settings of the Weights & Biases tracker, `[trackers.wandb]`."""

    mode: Literal["offline", "online"] = "offline"
    """offline: nothing is sent. online: metrics and the config are sent during the run."""
    project: str = "coterie"
    """Name of the Weights & Biases project."""
    entity: str = ""
    """Weights & Biases entity (user or team) of the project. Empty: the default of your account."""


class WandB(Other):
    """Weights & Biases: offline in the run's folder, or, where asked for, at their server."""

    extra = "wandb"
    package = "wandb"
    off: ClassVar = {"WANDB_ERROR_REPORTING": "false"}

    options: ClassVar[type[Settings]] = WandBConfig
    config: WandBConfig

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Begins a W&B run, in one group with those of the same folder that it goes on from."""
        wandb = self.library()
        own = self.config
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True,
            x_disable_machine_info=True,
        )  # fmt: skip
        self._run = wandb.init(
            project=own.project, entity=own.entity or None, mode=own.mode, dir=str(folder), name=folder.name,
            group=folder.name, config=dict(tables), reinit="create_new", settings=quiet,
        )  # fmt: skip
        for line in lines:
            self.log(line)

    def log(self, line: Line) -> None:
        """Logs one step."""
        self._run.log(as_trl(line), step=int(line["step"]))

    def end(self) -> None:
        """Waits until all is written, and sent where it is online."""
        self._run.finish()
