"""A team's models at work: its policies, the engine that samples from them and the learner that trains them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from coterie import ram
from coterie.config.settings import Config, PolicyConfig
from coterie.engines.routed import RoutedEngine
from coterie.kernel.loops import Hosted
from coterie.learning.learner import Learner
from coterie.learning.policy import Policy
from coterie.models.files import POLICIES
from coterie.run.exactness import KERNELS
from coterie.run.folder import Run
from coterie.run.past import PastSelves, whose
from coterie.run.rollout import Recalls, Rollout
from coterie.run.runtime import Local, Runtime

if TYPE_CHECKING:
    from coterie.engines.remote import RemotePolicy


class TeamModels:
    """The policies of a run, ready to play and, once `learner` is asked for, to learn."""

    def __init__(
        self, config: Config, checkpoint: Path | None = None, *, training: bool = False, folder: Path | None = None
    ) -> None:
        """Loads every policy's model.

        Args:
            checkpoint: its weights are taken.
            training: its optimizers too, to train on.
            folder: the run's, where servers' answers are kept; None: nowhere.

        Raises:
            ConfigError: a model, device or engine is not there, or this machine cannot play the environment.
            CheckpointError: shapes differ.
        """
        self.config = config
        config.environment.ready()
        saved = checkpoint / POLICIES if checkpoint is not None and not training else None
        self.runtime = _runtime(config, folder if training else None)
        with ExitStack() as undone:
            undone.callback(self.runtime.close)
            self.policies: dict[str, Policy] = {
                name: self.runtime.policy(name, policy, saved / whose(name, policy) if saved else None)
                for name, policy in config.policies.items()
                if policy.kind != "remote"
            }
            self._afar = partial(_remote, folder=folder, counted=training)
            self.remotes = {
                name: self._afar(name, policy) for name, policy in config.policies.items() if policy.kind == "remote"
            }
            self._origins = {name: policy.model.origin for name, policy in self.policies.items()} if training else {}
            self._learner: Learner | None = None
            if training:
                self._learner = self.runtime.learner(self.trained, checkpoint)
            elif checkpoint is not None:  # to play, an engine finds anew what a run found for its machine
                self.config = replace(
                    config, engine=config.engine.model_copy(update=dict.fromkeys(config.engine.found))
                )
            self.past = PastSelves(self.config, folder)
            self.engine = self._engine(self.policies, self.remotes)
            self.config = replace(config, engine=self.engine.config)
            undone.pop_all()

    def __enter__(self) -> TeamModels:
        self.engine.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the engine, the learner and the runtime; closing twice does no harm."""
        try:
            self.engine.shut()
        finally:
            if self._learner:
                self._learner.close()
            self.runtime.close()

    def exactness(self) -> dict[str, str]:
        """Returns what exact results rest on here: threads, devices, ranks, and models that policies began with."""
        devices = sorted({_named(policy.device, policy.dtype) for policy in self.policies.values()})
        ranks = self.config.train.ranks
        return {
            **({"ranks": str(ranks)} if ranks > 1 else {}),
            **({"runtime": about} if (about := self.runtime.about()) else {}),
            "threads": str(torch.get_num_threads()),
            "device": ", ".join(devices),
            **{name: os.environ[name] for name in KERNELS if name in os.environ},
            **{f"policy {policy}": digest for policy, digest in self._origins.items()},
        }

    @property
    def trained(self) -> dict[str, Policy]:
        """Policies that learn, by name."""
        return {name: self.policies[name] for name in self.config.team.trained}

    @property
    def learner(self) -> Learner:
        """The learner of all policies, made when first asked for."""
        if self._learner is None:
            self._learner = self.runtime.learner(self.trained, None)
        return self._learner

    def rollout(self, step: int, recall: Recalls) -> Rollout:
        """Plays a step's tasks, and returns their rollout. recall: what roles remember, by step."""
        return self.runtime.rollout(self.engine, step, recall)

    def engine_with(self, name: str, policy: PolicyConfig, folder: Path) -> Hosted:
        """Returns an engine that has one more policy: its weights from a folder, its template from `policy`."""
        if policy.kind == "remote":
            return self._engine(self.policies, {**self.remotes, name: self._afar(name, policy)})
        return self._engine({**self.policies, name: self.runtime.policy(name, policy, folder)}, self.remotes)

    def _engine(self, policies: Mapping[str, Policy], remotes: Mapping[str, RemotePolicy]) -> Hosted:
        engine = self.runtime.engine(policies, self.config.engine)
        if not remotes:
            return Hosted(engine)
        from coterie.engines.remote import RemoteEngine

        return Hosted(RoutedEngine(engine, RemoteEngine(remotes)))

    def sync(self, version: int) -> None:
        """Has the engine take over every policy's weights; snapshots of the past are saved and drawn first."""
        self.past.add(version, self.save)
        self.past.put(version, self.policies)
        self.engine.take_over(version)
        ram.give_back()

    @contextmanager
    def evaluated(self, version: int) -> Iterator[None]:
        """Has a policy of the past play as the one whose past it is, while it lasts, as in a run that is opened."""
        with self.past.now(version, self.policies, self.save) as any_past:
            if any_past:
                self.engine.take_over(version)
            yield
        if any_past:
            self.engine.take_over(version)

    def save(self, name: str, folder: Path) -> None:
        """Saves a trained policy's weights as an ordinary model folder."""
        self.policies[name].model.save(folder, self.learner.weights(name))

    def write(self, folder: Path) -> None:
        """Saves weights as ordinary model folders, with optimizers beside them."""
        for name in self.trained:
            self.save(name, folder / POLICIES / name)
        self.learner.save(folder)


def _runtime(config: Config, folder: Path | None) -> Runtime:
    """Returns the runtime of a run. Args: folder: of a run that trains; what only plays is in this process."""
    if folder is None or config.runtime.name == "local":
        return Local(config)
    from coterie.run.cluster.runtime import Cluster

    return Cluster(config, folder)


def _remote(name: str, policy: PolicyConfig, *, folder: Path | None, counted: bool) -> RemotePolicy:
    """Returns a policy that a server plays. folder: the run's, with answers. counted: those there count as spent."""
    from coterie.engines.remote import RemotePolicy

    file = f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}.jsonl"
    answers = None if folder is None else folder / "answers" / file
    return RemotePolicy(
        name, policy.model, policy.remote, policy.thinking, policy.system, answers, counted, policy.system_text
    )


def spending(run: Run) -> Iterator[str]:
    """Yields a line for each policy that a server plays: the calls, tokens and USD that a run has spent so far."""
    from coterie.engines.remote import PolicyServer

    for name, policy in run.config.policies.items():
        if policy.kind == "remote":
            purse = PolicyServer(_remote(name, policy, folder=run.folder, counted=True)).purse
            cost = purse.spent
            yield (
                f"policy {name}: {cost.calls} calls, {cost.prompt_tokens:,} + {cost.completion_tokens:,} tokens, "
                f"{purse.usd(cost):.4f} USD"
            )


def _named(device: torch.device, dtype: torch.dtype) -> str:
    """Returns a device with the name of its hardware; of a processor with what it computes with in a dtype."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    own = {"AVX512_BF16": torch.cpu._is_avx512_bf16_supported, "AMX": torch.cpu._is_amx_tile_supported}  # noqa: SLF001
    found = [name for name, there in own.items() if there()] if dtype == torch.bfloat16 else []
    return " ".join([device.type, torch.backends.cpu.get_cpu_capability(), *found])
