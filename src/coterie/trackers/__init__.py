"""Trackers, which take a run's metrics elsewhere than metrics.jsonl: one file for each that people use already.

A tracker is used only if the config of the run names it. It writes on this machine unless its settings say otherwise.
Usage reports of these libraries to their makers are switched off. A resumed run starts a new record at the tracker and
first logs all earlier lines. So the latest record is complete and agrees with metrics.jsonl.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from coterie.errors import ConfigError
from coterie.kernel.tracker import Line, Tracker

SAME_OF_RUN = {"rollout/reply_tokens": "completions/mean_length"}
SAME_OF_ROLE = {"truncated_share": "completions/clipped_ratio", "zero_variance_share": "frac_reward_zero_std"}
SAME_OF_POLICY = {
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "kl_k3": "kl",
    "clip_share": "clip_ratio/region_mean",
    "mismatch": "sampling/sampling_logp_difference/mean",
    "mismatch_max": "sampling/sampling_logp_difference/max",
    "correction": "sampling/importance_sampling_ratio/mean",
    "correction_max": "sampling/importance_sampling_ratio/max",
}
"""Metrics that TRL has too, with the same meaning, and what it calls them."""
SAME = {"role": SAME_OF_ROLE, "policy": SAME_OF_POLICY}


def as_trl(line: Line) -> dict[str, float]:
    """Returns a line without its step, by TRL's names for the same, with the role or policy: `entropy/solver`."""
    return {_as_trl(name): value for name, value in line.items() if name != "step"}


def _as_trl(name: str) -> str:
    kind, _, rest = name.partition("/")
    owner, _, what = rest.partition("/")
    same = SAME.get(kind, {}).get(what)
    return f"{same}/{owner}" if same else SAME_OF_RUN.get(name, name)


class Other(Tracker):
    """A tracker that is a library of others."""

    extra: ClassVar[str]
    """Name of the extra of ours that installs it, and of the tracker in the registry."""
    package: ClassVar[str]
    off: ClassVar[Mapping[str, str]] = {}
    """Environment variables that keep it from reporting to its makers; they are read when it is imported."""

    def ready(self) -> None:
        """Raises ConfigError if the library is not installed."""
        self.library()

    def library(self) -> Any:
        """Returns the library's module.

        Raises:
            ConfigError: it is not installed.
        """
        os.environ.update(self.off)
        try:
            return importlib.import_module(self.package)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"tracker '{self.extra}' needs {error.name}; install it: pip install 'coterie[{self.extra}]'"
            ) from error
