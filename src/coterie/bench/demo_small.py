"""The benchmark of `make demo-small`: it trains the shipped starter for minutes and measures before and after."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.kernel.safe import command
from coterie.report.display import Display
from coterie.report.terminal import SafeConsole
from coterie.run.evaluate import Evaluation
from coterie.run.folder import Run
from coterie.run.loaded import headline, load
from coterie.run.train import train

CONFIG = "configs/plan_path.toml"
"""A config file that does the same as `coterie train plan_path`."""


def run(say: Say) -> dict[str, Any]:
    """Trains the demo's team and measures it on the same 1,000 test tasks before and after."""
    began = time.perf_counter()
    run = train(load_config(CONFIG), trackers=[Display(console=SafeConsole(stderr=True, highlight=False))])
    minutes = (time.perf_counter() - began) / 60
    figures = headline(run)
    say(str(figures))
    say(f"watch it play: {command('play', run.folder)}")
    start = {"start_success": figures.start.success, "start_turns": round(figures.start.turns, 3)}
    return _figures(run, start, figures.end, minutes)


def before_and_after(config: Config, out: Path, start: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Trains a team; returns success and turns at its start and at its best checkpoint, and the minutes between.

    start: start_success and start_turns, if known; None: they are measured.
    """
    began = time.perf_counter()
    run = train(config, out)
    minutes = (time.perf_counter() - began) / 60
    if start is None:
        before = load(run.folder, 0).evaluate()
        start = {"start_success": before.success, "start_turns": round(before.turns, 3)}
    return _figures(run, start, load(run.folder).evaluate(), minutes)


def _figures(run: Run, start: Mapping[str, float], end: Evaluation, minutes: float) -> dict[str, Any]:
    return {
        "run": str(run.folder),
        "tasks": end.tasks,
        **start,
        "success": end.success,
        "success_low": round(end.success_low, 4),
        "success_high": round(end.success_high, 4),
        "turns": round(end.turns, 3),
        "tokens": round(end.tokens, 1),
        **({"by_kind": {kind: round(share, 4) for kind, share in end.by_kind.items()}} if end.by_kind else {}),
        "training_minutes": round(minutes, 2),
    }
