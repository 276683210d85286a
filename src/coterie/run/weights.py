"""A team made of real weights: models, engine and learner, built from a config or a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from coterie.config.settings import Config, PolicyConfig
from coterie.engines.transformers import TransformersEngine
from coterie.errors import CheckpointError, ConfigError
from coterie.kernel.play import Sampling
from coterie.learning.learner import Learner
from coterie.models.load import Model, fingerprint, load_model, save_model

KERNELS = ("MKL_CBWR",)
"""Variables of the environment that choose how a processor adds up."""


class Crew:
    """The policies of a run, ready to play and, once `learner` is asked for, to learn."""

    def __init__(self, config: Config, checkpoint: Path | None = None, *, training: bool = False) -> None:
        """Loads every policy's model.

        Args: checkpoint: its weights are taken. training: its optimizers too, to train on.
        Raises: ConfigError: a model or device is not there, or this machine cannot play the environment.
            CheckpointError: shapes differ.
        """
        self.config = config
        config.environment.ready()
        self.dtype: torch.dtype = getattr(torch, config.train.dtype)
        device = pick_device(config.train.device)
        saved = checkpoint / "policies" if checkpoint is not None and not training else None
        self.models: dict[str, Model] = {
            name: load_model(str(saved / name), device=device, where=f"policy {name}")
            if saved  # to play, a checkpoint is enough: what the run began with may have gone
            else load_model(policy.model, device=device, where=f"policies.{name}.model")
            for name, policy in config.policies.items()
        }
        self._origins = {name: fingerprint(model) for name, model in self.models.items()} if training else {}
        self._learner: Learner | None = None
        if checkpoint is not None and training:
            self._learner = self.learner  # a reference for KL is taken from the weights the run began with
        if checkpoint is not None and training:
            for name in self.models:
                self._restore(name, checkpoint)
                state = torch.load(checkpoint / "optimizers" / f"{name}.pt", weights_only=True)
                self.learner.load(name, state)
        self.engine = self._engine({})

    def exactness(self) -> dict[str, str]:
        """What the same numbers rest on here: threads, device, and the models that the policies began with."""
        device = pick_device(self.config.train.device)
        name = torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()
        return {
            "threads": str(torch.get_num_threads()),
            "device": f"{device} {name}",
            **{name: os.environ[name] for name in KERNELS if name in os.environ},
            **{f"policy {policy}": digest for policy, digest in self._origins.items()},
        }

    @property
    def learner(self) -> Learner:
        """The learner of all policies, made when first asked for."""
        if self._learner is None:
            self._learner = Learner(
                self.models,
                self.config.algorithm.loss,
                self.config.optimizer,
                self.config.train.steps,
                seed=self.config.train.seed,
                dtype=self.dtype,
            )
        return self._learner

    def sampling(self, temperature: float, top_p: float = 1.0) -> Sampling:
        """How replies are drawn in this run."""
        engine = self.config.engine
        return Sampling(temperature, top_p, engine.max_tokens, engine.call_timeout_s, engine.play_timeout_s)

    def engine_with(self, name: str, policy: PolicyConfig, folder: Path) -> TransformersEngine:
        """An engine that has one more policy: its weights from a folder, its template from `policy`."""
        model = load_model(str(folder), device=pick_device(self.config.train.device), where=f"policy {name}")
        return self._engine({name: (model, policy)})

    def _engine(self, more: Mapping[str, tuple[Model, PolicyConfig]]) -> TransformersEngine:
        policies = {**self.config.policies, **{name: policy for name, (_, policy) in more.items()}}
        return TransformersEngine(
            {**self.models, **{name: model for name, (model, _) in more.items()}},
            dtype=self.dtype,
            rows=self.config.engine.rows,
            template={name: policy.template for name, policy in policies.items()},
        )

    def sync(self, version: int) -> None:
        """The engine takes over every policy's weights."""
        for name in self.models:
            self.engine.sync(name, version)

    def write(self, folder: Path) -> None:
        """Weights as ordinary model folders, optimizers beside them."""
        for name, model in self.models.items():
            save_model(model, folder / "policies" / name)
            (folder / "optimizers").mkdir(exist_ok=True)
            torch.save(self.learner.state(name), folder / "optimizers" / f"{name}.pt")

    def _restore(self, name: str, folder: Path) -> None:
        model = self.models[name]
        saved = load_model(str(folder / "policies" / name), device=str(model.device), where=f"policy {name}")
        try:
            model.net.load_state_dict(saved.net.state_dict())
        except RuntimeError as error:
            raise CheckpointError(
                f"{folder / 'policies' / name} has other shapes than policies.{name}.model of its config; "
                "the model it started from has changed"
            ) from error


def pick_device(wanted: str) -> str:
    """The device a setting stands for. Raises: ConfigError: it is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, available in there.items() if available)
    if not there[wanted]:
        raise ConfigError(f"train.device = '{wanted}', but there is no such device here; use 'auto' or 'cpu'")
    return wanted
