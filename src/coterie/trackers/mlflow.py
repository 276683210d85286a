"""MLflow: a database in the run's folder, or a server of one's own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from coterie.kernel.environment import Settings
from coterie.kernel.tracker import Line
from coterie.trackers import Other, as_trl

LONGEST = 6000
"""Maximum characters of a parameter's value that MLflow takes."""


class MLflowConfig(Settings):
    """Settings of the MLflow tracker, `[trackers.mlflow]`."""

    uri: str = ""
    """URI of a tracking server, such as http://localhost:5000. Empty: mlflow.db in the run folder."""
    experiment: str = "coterie"
    """Name of the MLflow experiment."""


class MLflow(Other):
    """MLflow: a database in the run's folder, or a server of your own."""

    extra = "mlflow"
    package = "mlflow"
    off: ClassVar = {"MLFLOW_DISABLE_TELEMETRY": "true"}

    options: ClassVar[type[Settings]] = MLflowConfig
    config: MLflowConfig

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Begins a run of MLflow's, named after the folder."""
        mlflow = self.library()
        self._metric = mlflow.entities.Metric
        self._client = mlflow.MlflowClient(self.config.uri or f"sqlite:///{folder.resolve() / 'mlflow.db'}")
        there = self._client.get_experiment_by_name(self.config.experiment)
        experiment = there.experiment_id if there else self._client.create_experiment(self.config.experiment)
        self._run = self._client.create_run(experiment, run_name=folder.name).info.run_id
        for table, content in tables.items():
            self._client.log_param(self._run, table, json.dumps(content)[:LONGEST])
        for line in lines:
            self.log(line)

    def log(self, line: Line) -> None:
        """Logs one step, in one request."""
        now, step = int(time.time() * 1000), int(line["step"])
        metrics = [self._metric(name, value, now, step) for name, value in as_trl(line).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self) -> None:
        """Marks the run as over."""
        self._client.set_terminated(self._run)
