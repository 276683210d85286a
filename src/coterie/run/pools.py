"""Pools of policies: those of a run that share engines and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.config.settings import UNTRAINED, Config
from coterie.models.files import base_of


@dataclass(frozen=True, slots=True)
class Pool:
    """Policies that share engines and ranks. trained: those that learn."""

    policies: tuple[str, ...]
    trained: tuple[str, ...]


def pools_of(config: Config) -> list[Pool]:
    """Returns the pools of a run: adapters on one base share engines and ranks."""
    pools: dict[str, list[str]] = {}
    for name in config.team.policies:
        policy = config.policies[name]
        base = base_of(Path(policy.model)) or policy.model
        pools.setdefault(f"adapters of {base}" if policy.kind == "lora" else name, []).append(name)
    return [
        Pool(tuple(names), tuple(name for name in names if config.policies[name].kind not in UNTRAINED))
        for names in pools.values()
    ]


def needed(config: Config) -> tuple[int, float]:
    """Returns the CPUs that a run asks a cluster for, and the GPUs, where it computes on them."""
    pools, runtime = pools_of(config), config.runtime
    engines = len(pools) * runtime.engines
    ranks = sum(bool(pool.trained) for pool in pools) * config.train.ranks
    cpus = (engines + ranks) * runtime.cpus + runtime.workers
    return cpus, engines * runtime.engine_gpus + ranks * runtime.rank_gpus
