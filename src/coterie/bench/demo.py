"""What `make demo` shows: the shipped starter, minutes of training, and what the team achieves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from coterie.api import load
from coterie.bench import Say
from coterie.config import Config, load_config
from coterie.display import TrainingDisplay
from coterie.train import train

CONFIG = "configs/plan_path.toml"


def run(say: Say) -> dict[str, Any]:
    """Trains with the demo's config and measures before and after on the same 1,000 test tasks."""
    with TrainingDisplay(Console(stderr=True, highlight=False)) as display:
        figures = before_and_after(load_config(CONFIG), watch=display)
    say(f"watch it play: coterie play {figures['run']}")
    return figures


def before_and_after(config: Config, out: Path | None = None, watch: Any = None) -> dict[str, Any]:
    """A run's success and turns at its start and at its best checkpoint, and the minutes between."""
    began = time.perf_counter()
    run = train(config, out, watch=watch)
    seconds = time.perf_counter() - began
    start, end = load(run.folder, 0).evaluate(), load(run.folder).evaluate()
    return {
        "run": str(run.folder),
        "tasks": end.tasks,
        "start_success": start.success,
        "success": end.success,
        "success_low": round(end.success_low, 4),
        "success_high": round(end.success_high, 4),
        "start_turns": round(start.turns, 3),
        "turns": round(end.turns, 3),
        "training_minutes": round(seconds / 60, 2),
    }
