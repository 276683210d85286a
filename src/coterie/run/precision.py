"""Data type for `train.dtype = "auto"`: the faster one on the device, measured at the start of a run."""

from __future__ import annotations

from dataclasses import replace

from coterie.checks.machines import Machine, here
from coterie.config.settings import Config
from coterie.models.lean import LARGE
from coterie.models.shapes import Shapes
from coterie.run.policies import Policies, pick_device

FASTER = 1.5
"""Speed over that of float32 from which on bfloat16 is worth its rounding."""


def precise(config: Config, before: Config | None = None, machine: Machine | None = None) -> Config:
    """Returns the config with a data type in place of "auto", for good.

    Products of matrices are timed in both, for a fifth of a second. Small networks on a processor are computed without
    their modules in float32 alone, which no product in bfloat16 makes up for.

    Args:
        before: of the same run, when it began: it stays as it was found then.
        machine: that it is for; None: this one.
    """
    if config.train.dtype != "auto":
        return config
    if before is not None:
        return _typed(config, before.train.dtype)
    machine = machine or here(pick_device(config.train.device))
    fine = _typed(config, "float32")
    if machine.bfloat16 < FASTER * machine.float32 or (machine.kind == "cpu" and _small(fine)):
        return fine
    return _typed(config, "bfloat16")


def _typed(config: Config, dtype: str) -> Config:
    return replace(config, train=config.train.model_copy(update={"dtype": dtype}))


def _small(config: Config) -> bool:
    """Returns True if all networks that have weights here are small."""
    load = Policies(config, Shapes().load).load
    ours = [(name, policy) for name, policy in config.policies.items() if policy.kind != "remote"]
    return all(load(name, policy, "cpu").model.size <= LARGE for name, policy in ours)
