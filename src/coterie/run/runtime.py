"""The local runtime: all parts of a run are in this process, except the ranks of a learner. See also `cluster/`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from coterie.config.settings import Config, PolicyConfig
from coterie.kernel.engine import Engine, EngineConfig
from coterie.learning.learner import Learner, LocalLearner
from coterie.learning.policy import Policy
from coterie.registry import find
from coterie.run.policies import Policies
from coterie.run.rollout import Recalls, Rollout, play_tasks, step_tasks


class Runtime(Protocol):
    """Interface of what places policies, engines, learners and environments, and has them work together."""

    def policy(self, name: str, policy: PolicyConfig, folder: Path | None) -> Policy:
        """Returns a policy as the run's process has it. folder: a checkpoint's, whose weights it has."""
        ...

    def engine(self, policies: Mapping[str, Policy], settings: EngineConfig) -> Engine:
        """Returns the engine that answers for policies that have weights."""
        ...

    def learner(self, policies: Mapping[str, Policy], checkpoint: Path | None) -> Learner:
        """Returns the learner of policies; it keeps their weights in the run's process up to date."""
        ...

    def rollout(self, engine: Engine, step: int, recall: Recalls) -> Rollout:
        """Plays a step's tasks, and returns their rollout.

        Args:
            engine: what answers, where they are played in the run's process.
        """
        ...

    def about(self) -> str:
        """Says where the parts are, in words that two runs have alike if they compute alike; "" for one process."""
        ...

    def close(self) -> None:
        """Ends what the runtime has placed, and whatever it started for that."""
        ...


class Local:
    """A runtime of one process: its learner and its engine share the weights, and take turns."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._make = Policies(config).make

    def policy(self, name: str, policy: PolicyConfig, folder: Path | None) -> Policy:
        return self._make(name, policy, folder)

    def engine(self, policies: Mapping[str, Policy], settings: EngineConfig) -> Engine:
        return find("engine", self.config.names["engine"], Engine)(policies, settings)

    def learner(self, policies: Mapping[str, Policy], checkpoint: Path | None) -> Learner:
        train = self.config.train
        if train.ranks > 1:
            from coterie.run.ranks import RankedLearner

            return RankedLearner(self.config, policies, checkpoint)
        return LocalLearner(
            policies, self.config.loss, train.steps, seed=train.seed, max_mismatch=train.max_mismatch,
            checkpoint=checkpoint,
        )  # fmt: skip

    def rollout(self, engine: Engine, step: int, recall: Recalls) -> Rollout:
        return play_tasks(self.config, engine, step, step_tasks(self.config, step), recall(step))

    def about(self) -> str:
        return ""

    def close(self) -> None:
        """Does nothing: no part was placed elsewhere."""
