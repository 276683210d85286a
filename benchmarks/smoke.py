"""A smoke test: twenty steps of the demo. It fails if validation success does not rise."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.bench.demo_small import CONFIG
from coterie.config.resolve import load_config
from coterie.errors import RolloutError
from coterie.run.train import train


def run(say: Say) -> dict[str, Any]:
    """Returns validation success before and after twenty steps.

    Raises:
        RolloutError: it has not risen by 10 points.
    """
    with tempfile.TemporaryDirectory() as folder:
        say("training twenty steps")
        run = train(load_config(CONFIG, ["train.steps=20", "train.tasks_per_step=32"]), Path(folder) / "run")
        successes = [line["validation/success"] for line in run.metrics() if "validation/success" in line]
    if successes[-1] < successes[0] + 0.1:
        raise RolloutError(f"success went from {successes[0]:.3f} to {successes[-1]:.3f} in 20 steps; it must rise")
    return {"start": successes[0], "success": successes[-1]}
