"""Coterie trains teams of language-model agents with reinforcement learning.

The public API is the names in `__all__`; everything else may change. They are imported on first use, so
that importing an environment or printing help does not import torch.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.checks.conformance import check
    from coterie.config.resolve import load_config
    from coterie.errors import CallError, CoterieError, Unavailable
    from coterie.kernel.algorithm import Algorithm
    from coterie.kernel.engine import Engine, EngineConfig, Request
    from coterie.kernel.environment import Environment, Lesson, Settings, Task, split_of
    from coterie.kernel.episode import Sample
    from coterie.kernel.scene import Reply, Scene
    from coterie.kernel.tracker import Tracker
    from coterie.learning.loss import Loss
    from coterie.run.ablation import Ablation
    from coterie.run.export import export
    from coterie.run.loaded import evaluate, load
    from coterie.run.sft import sft
    from coterie.run.train import train
    from coterie.run.update import update
    from coterie.seeds import seed_of

__version__ = "0.1.0"

warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's, in a notebook: progress is shown without it

_HOMES = {
    "Ablation": "coterie.run.ablation",
    "Algorithm": "coterie.kernel.algorithm",
    "CallError": "coterie.errors",
    "CoterieError": "coterie.errors",
    "Engine": "coterie.kernel.engine",
    "EngineConfig": "coterie.kernel.engine",
    "Environment": "coterie.kernel.environment",
    "Lesson": "coterie.kernel.environment",
    "Loss": "coterie.learning.loss",
    "Reply": "coterie.kernel.scene",
    "Request": "coterie.kernel.engine",
    "Sample": "coterie.kernel.episode",
    "Scene": "coterie.kernel.scene",
    "Settings": "coterie.kernel.environment",
    "Task": "coterie.kernel.environment",
    "Tracker": "coterie.kernel.tracker",
    "Unavailable": "coterie.errors",
    "check": "coterie.checks.conformance",
    "evaluate": "coterie.run.loaded",
    "export": "coterie.run.export",
    "load": "coterie.run.loaded",
    "load_config": "coterie.config.resolve",
    "seed_of": "coterie.seeds",
    "sft": "coterie.run.sft",
    "split_of": "coterie.kernel.environment",
    "train": "coterie.run.train",
    "update": "coterie.run.update",
}
__all__ = [
    "Ablation",
    "Algorithm",
    "CallError",
    "CoterieError",
    "Engine",
    "EngineConfig",
    "Environment",
    "Lesson",
    "Loss",
    "Reply",
    "Request",
    "Sample",
    "Scene",
    "Settings",
    "Task",
    "Tracker",
    "Unavailable",
    "check",
    "evaluate",
    "export",
    "load",
    "load_config",
    "seed_of",
    "sft",
    "split_of",
    "train",
    "update",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # also over the submodule of the same name
    return value
