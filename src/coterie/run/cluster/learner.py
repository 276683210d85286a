"""Learners of a cluster, as one learner: each pool has a group of ranks, and learns beside the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError
from safetensors.torch import load as unpacked

from coterie.errors import CheckpointError, CoterieError, LearnerLost, UpdateError
from coterie.kernel.team import Graded
from coterie.learning.batch import Learned
from coterie.learning.policy import Policy
from coterie.models.files import OPTIMIZERS, POLICIES
from coterie.run.ranks import RankStart

WAIT_S = 0.5
"""Seconds between two checks whether a signal has come."""
DEATH_S = 30.0
"""Seconds that may pass until Ray tells that a rank has ended, after other ranks have noticed it."""
Settled = Callable[[int, Mapping[str, Sequence[Graded]], Mapping[str, Learned]], None]
"""A function that is told of a step, its experience, and what was learned from it."""


class PooledLearner:
    """A learner that routes experience to the pools of its policies, and keeps the weights here up to date."""

    def __init__(
        self,
        policies: Mapping[str, Policy],
        pools: Mapping[tuple[str, ...], Sequence[Any]],
        place: RankStart,
        settled: Settled,
    ) -> None:
        """Brings up the ranks of all pools.

        Args:
            policies: those that learn, as the run's process has them.
            pools: the ranks of each pool, by the policies that it trains.
            place: what all ranks are told alike.

        Raises:
            CoterieError: one does not come up.
        """
        self.policies = dict(policies)
        self._pools = dict(pools)
        self._settled = settled
        calls: dict[Any, Any] = {}
        for names, ranks in self._pools.items():
            meet = _got(ranks[0].meeting.remote()) if len(ranks) > 1 else ""
            for number, rank in enumerate(ranks):
                mine = replace(place, policies=names, rank=number, size=len(ranks), meet=meet)
                calls[rank.begin.remote(mine)] = names
        self._answers(calls)
        if place.checkpoint:
            for name, policy in self.policies.items():
                policy.model.take(place.checkpoint / POLICIES / name)

    def update(self, experience: Mapping[str, Sequence[Graded]], step: int, spent: float = 0.0) -> dict[str, Learned]:
        """Makes one rollout's optimizer steps for every policy that has experience, pools side by side.

        Raises:
            CoterieError: as a learner alone raises it.
            LearnerLost: a rank has ended.
        """
        shares = {
            names: {name: experience[name] for name in names if name in experience}
            for names in self._pools
            if any(experience.get(name) for name in names)
        }
        learned: dict[str, Learned] = {}
        asked = {names: (share, step, spent) for names, share in shares.items()}
        for part in self._asked("update", asked).values():
            learned |= part
        for name in learned:
            names = next(names for names in self._pools if name in names)
            (weights,) = self._asked("packed", {names: (name,)}).values()
            self.policies[name].model.put(unpacked(weights))
        self._settled(step, experience, learned)
        return learned

    def weights(self, name: str) -> Mapping[str, torch.Tensor]:
        """Returns a policy's weights as a checkpoint keeps them: whole, under the names that its model gives them."""
        return self.policies[name].model.weights()

    def save(self, folder: Path) -> None:
        """Has the ranks write the state of every policy's optimizer, into a folder that all machines see."""
        self._asked("save", dict.fromkeys(self._pools, (folder.absolute(),)))
        for names, ranks in self._pools.items():
            for name in names:
                there = folder / OPTIMIZERS / name
                parts = there.glob("*.safetensors") if len(ranks) > 1 else there.parent.glob(f"{name}.pt")
                if len(list(parts)) < len(ranks):
                    raise CheckpointError(
                        f"{there} is not whole: ranks on other machines wrote elsewhere; put the run's folder on a "
                        "disk that all machines see"
                    )

    def close(self) -> None:
        """Does nothing: the ranks end with the cluster's part of the run."""

    def _asked(self, method: str, args: Mapping[tuple[str, ...], tuple[Any, ...]]) -> dict[tuple[str, ...], Any]:
        """Calls a method of the ranks, waits for all of them, and returns the first rank's result for each pool."""
        calls: dict[Any, Any] = {}
        for names, given in args.items():
            shared = [ray.put(value) for value in given]
            for rank in self._pools[names]:
                calls[rank.asked.remote(method, *shared)] = names
        return self._answers(calls)

    def _answers(self, calls: Mapping[Any, tuple[str, ...]]) -> dict[tuple[str, ...], Any]:
        """Waits for all ranks, and returns the first rank's result for each pool.

        Args:
            calls: what is waited for, in the order of ranks.

        Raises:
            CoterieError: what a pool refuses; where others have learned, weights have moved.
            LearnerLost: a rank has ended: the others of its pool would wait for it, and all are given up.
        """
        said: dict[Any, tuple[str, Any]] = {}
        waiting, failed = list(calls), None
        while waiting and failed is None:
            done, waiting = ray.wait(waiting, timeout=WAIT_S)
            for ref in done:
                try:
                    said[ref] = ray.get(ref)
                except RayError as error:
                    failed = error
                else:
                    if said[ref][0] == "failed":
                        failed = said[ref][1]
        if failed is not None:
            self._given_up(calls, waiting, failed)
        first: dict[tuple[str, ...], Any] = {}
        refused: list[CoterieError] = []
        for ref, names in calls.items():
            kind, value = said[ref]
            if names not in first:
                first[names] = value
                refused += [value] if kind == "refused" else []
        if refused:
            moved = len(refused) < len(first) or not all(getattr(error, "untouched", True) for error in refused)
            if isinstance(refused[0], UpdateError) and moved:
                raise UpdateError(str(refused[0]), untouched=False) from refused[0]
            raise refused[0]
        return first

    def _given_up(self, calls: Mapping[Any, Any], waiting: Sequence[Any], failed: Exception) -> None:
        """Raises LearnerLost if a rank has ended, else the exception that one of them failed by."""
        ended = isinstance(failed, RayError)
        for ref in [] if ended else ray.wait(list(waiting), num_returns=len(waiting), timeout=DEATH_S)[0]:
            try:  # the others of its pool say at once that it has gone, and its own end is told later
                ray.get(ref)
            except RayError:
                ended = True
        if not ended:
            raise failed
        raise LearnerLost("a rank of a learner has ended, and with it what was learned since the last checkpoint")


def _got(ref: Any) -> Any:
    try:
        return ray.get(ref)
    except RayError as error:
        raise LearnerLost("a rank of a learner has ended before it began") from error
