"""Peak memory of the demo: a process runs three steps, a validation, a checkpoint and the final test."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

from coterie.bench import Say

SCRIPT = """
import sys
from coterie import evaluate, load_config, train
from coterie.run.dry import resident
train(load_config("configs/plan_path.toml", ["train.steps=3"]), sys.argv[1])
evaluate(sys.argv[1])
print(resident())
"""


def run(say: Say) -> dict[str, Any]:
    """Runs three steps and a test in a process, and returns its peak of resident memory in GiB."""
    say("training three steps")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SCRIPT, f"{folder}/run"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"peak_gib": round(int(done.stdout.split()[-1]) / 2**30, 2)}
