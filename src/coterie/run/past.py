"""Opponents that are earlier versions of a policy: a pool of snapshots, one of which is drawn for every rollout."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from coterie.config.settings import Config, PolicyConfig
from coterie.errors import CheckpointError
from coterie.learning.policy import Policy
from coterie.seeds import seed_of

Save = Callable[[str, Path], None]
"""A function that writes a policy's weights, as they are now, as a model's folder."""


def whose(name: str, policy: PolicyConfig) -> str:
    """Returns the name of the policy that has the weights: the policy itself, or the one whose past it is."""
    return policy.model if policy.kind == "past" else name


class PastSelves:
    """Snapshots of the policies of a run, in its folder: `past/POLICY/step-00010`.

    Which one a step meets follows from the seed and the number of the step, so that a run that goes on from a
    checkpoint meets the same.

    Args:
        folder: the run's; None: nothing is kept, and those of the past stay as they were made.
    """

    def __init__(self, config: Config, folder: Path | None) -> None:
        self._seed = config.train.seed
        self._folder = folder or Path()
        self._pools = {name: policy for name, policy in config.policies.items() if folder and policy.kind == "past"}

    def add(self, step: int, save: Save) -> None:
        """Saves snapshots of policies after a step, if it is one of those in their pools."""
        for name, policy in self._pools.items():
            if step % policy.past.every == 0:
                folder = self._of(name, step)
                aside = folder.with_name("being written")
                shutil.rmtree(aside, ignore_errors=True)
                save(policy.model, aside)
                shutil.rmtree(folder, ignore_errors=True)
                aside.rename(folder)

    def put(self, step: int, policies: Mapping[str, Policy]) -> None:
        """Gives the policies of the past the weights that the next step's rollout meets.

        Raises:
            CheckpointError: they have gone, or are damaged.
        """
        for name, policy in self._pools.items():
            drawn = Random(seed_of("past", self._seed, name, step)).choice(pool(step, policy))
            folder = self._of(name, drawn)
            try:
                policies[name].model.take(folder)
            except Exception as error:  # whatever reads weights may raise
                gone = "damaged" if folder.exists() else "missing"
                raise CheckpointError(
                    f"{folder} is {gone}, which policies.{name} plays after step {step}; put it back, or begin anew"
                ) from error

    @contextmanager
    def now(self, step: int, policies: Mapping[str, Policy], save: Save) -> Iterator[bool]:
        """Gives policies of the past the present weights while it lasts; yields True if there are such policies."""
        for name, policy in self._pools.items():
            folder = self._of(name, 0).with_name("now")
            save(policy.model, folder)
            policies[name].model.take(folder)
            shutil.rmtree(folder)
        yield bool(self._pools)
        self.put(step, policies)

    def trim(self, steps: Iterable[int]) -> None:
        """Removes snapshots that none of the pools holds after any of some steps, those of all checkpoints."""
        for name, policy in self._pools.items():
            kept = {self._of(name, at) for step in steps for at in pool(step, policy)}
            for folder in self._of(name, 0).parent.glob("step-*"):
                if folder not in kept:
                    shutil.rmtree(folder)

    def _of(self, name: str, step: int) -> Path:
        return self._folder / "past" / name / f"step-{step:05d}"


def pool(step: int, policy: PolicyConfig) -> list[int]:
    """Returns the steps of the snapshots that a pool holds after a step."""
    return list(range(0, step + 1, policy.past.every))[-policy.past.keep :]
