"""What `make demo` shows: the shipped starter, minutes of training, and what the team achieves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.api import load
from coterie.bench import Say
from coterie.config import Config, load_config
from coterie.display import TrainingDisplay
from coterie.run.train import train
from coterie.safe import command
from coterie.terminal import SafeConsole

CONFIG = "configs/plan_path.toml"


def run(say: Say) -> dict[str, Any]:
    """Trains with the demo's config and measures before and after on the same 1,000 test tasks."""
    with TrainingDisplay(SafeConsole(stderr=True, highlight=False)) as display:
        figures = before_and_after(load_config(CONFIG), watch=display)
    say(f"watch it play: {command('play', figures['run'])}")
    return figures


def before_and_after(
    config: Config, out: Path | None = None, watch: Any = None, start: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """A run's success and turns at its start and at its best checkpoint, and the minutes between.

    start: start_success and start_turns, if known; None: they are measured.
    """
    began = time.perf_counter()
    run = train(config, out, watch=watch)
    seconds = time.perf_counter() - began
    if start is None:
        before = load(run.folder, 0).evaluate()
        start = {"start_success": before.success, "start_turns": round(before.turns, 3)}
    end = load(run.folder).evaluate()
    return {
        "run": str(run.folder),
        "tasks": end.tasks,
        **start,
        "success": end.success,
        "success_low": round(end.success_low, 4),
        "success_high": round(end.success_high, 4),
        "turns": round(end.turns, 3),
        "training_minutes": round(seconds / 60, 2),
    }
