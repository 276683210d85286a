"""`Algorithm`, the base class of algorithms: a sampler, a credit rule and a loss together. It needs no torch.

`run/train.py` uses four methods of an algorithm and does not depend on which algorithm it is. To add
one, write a file in `algorithms/` and add a line to `registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from coterie.errors import GroupError
from coterie.kernel.environment import Environment, Settings, Task
from coterie.kernel.episode import Horizon
from coterie.kernel.group import Collected, Group
from coterie.kernel.play import Play
from coterie.kernel.team import Team

State = dict[str, Any]
"""Data that an algorithm keeps from step to step; plain data, saved in every checkpoint."""


class Algorithm(Settings):
    """Base class of training algorithms. Its fields are settings; its methods implement the algorithm."""

    loss: ClassVar[Mapping[str, Any]] = {"name": "clip"}
    """The loss of the algorithm's paper, as a `[loss]` table of a config: a name, and settings that differ from that
    loss's defaults."""

    @property
    def reach(self) -> Horizon:
        """The horizon within which a local reward after a reply still counts."""
        return "episode"

    def adds_up(self) -> bool:
        """Returns True if a role's return includes the rewards of all roles, which is useless for rivals."""
        return False

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError if this algorithm cannot train this team."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays a task and returns the groups to train on and the committed episodes."""
        raise NotImplementedError

    def start(self) -> State:
        """Returns the algorithm's state before the first step."""
        return {}

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Computes the advantages of all groups of a step. It is called once per step.

        A sample that is in several groups is trained once. Its advantage is the sum of its advantages in these
        groups, each multiplied by the group's weight.

        Args:
            groups: the selected groups.
            state: the state that the previous step returned; it must not be changed.

        Returns:
            for each group one number per member, and the new state. By default, these are the `advantages` of each
            group and the unchanged state.
        """
        return [self.advantages(group) for group in groups], state

    def advantages(self, group: Group) -> tuple[float, ...]:
        """Returns one advantage per member, for algorithms that treat each group separately."""
        raise GroupError(f"{type(self).__name__} writes neither advantages nor credit; write one of them")

    def select(self, groups: Sequence[Group], rng: Random) -> Sequence[Group]:
        """Returns the groups of a step to train on, possibly with other weights; by default all groups.

        Args:
            rng: the random number generator of the step.
        """
        return groups
