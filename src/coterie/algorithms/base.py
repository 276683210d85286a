"""What an algorithm is: a recipe of sampler, credit and loss; no trainer, no torch.

`run/train.py` asks an algorithm four things and never which one it is. A new one is a file beside
this one and a line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from coterie.algorithms.credit import CREDIT, Credit
from coterie.errors import GroupError
from coterie.kernel.environment import Environment, Settings, Task
from coterie.kernel.episode import Horizon
from coterie.kernel.group import Collected, Group
from coterie.kernel.play import Play
from coterie.kernel.team import Team

State = dict[str, Any]
"""What a method remembers from step to step: plain data, kept in every checkpoint."""


class Algorithm(Settings):
    """A method: its fields are its settings, its methods are its paper."""

    loss: ClassVar[Mapping[str, Any]] = {"name": "clip"}
    """Its paper's loss, as the table `[loss]` of a config: a name, and settings where they are not that loss's own."""

    @property
    def reach(self) -> Horizon:
        """How far a local reward may come after its reply and still be counted."""
        return "episode"

    def adds_up(self) -> bool:
        """Whether a role is judged by all that roles earn together, which says nothing where they are rivals."""
        return False

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError where this method cannot train that team."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays a task: groups to learn from, and the committed episodes."""
        raise NotImplementedError

    def start(self) -> State:
        """What is remembered before the first step."""
        return {}

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """The advantages of a whole step at once, asked for once.

        A sample that stands in several groups is trained once, with the sum of what it earned in each times that
        group's weight.

        Args:
            groups: those that were selected.
            state: what was returned a step ago; it is not changed.

        Returns:
            for each group a number a member, and what is remembered from here on. Unless a method says otherwise,
            each group's `advantages`, and nothing.
        """
        return [self.advantages(group) for group in groups], state

    def advantages(self, group: Group) -> tuple[float, ...]:
        """A number a member, of a method that credits each group by itself."""
        raise GroupError(f"{type(self).__name__} writes neither advantages nor credit; write one of them")

    def select(self, groups: Sequence[Group], rng: Random) -> Sequence[Group]:
        """The groups of a step that are trained, perhaps with other weights; all, unless a method chooses.

        Args:
            rng: the step's own.
        """
        return groups


class GroupBaseline(Algorithm):
    """What the group-relative methods share: how many replies, and how returns become credit."""

    num_generations: int = Field(default=8, ge=2)
    """Replies, or episodes, that are compared with each other."""
    team_weight: float = Field(default=1.0, ge=0)
    """Weight of team rewards beside local ones."""
    advantage: Credit = "standardize"
    """How a group's returns become advantages."""

    def advantages(self, group: Group) -> tuple[float, ...]:
        """The chosen function of the group's returns, a number a member."""
        return tuple(CREDIT[self.advantage](group.values))


class RoleBaseline(GroupBaseline):
    """What the methods share that judge episodes by all rewards, or each role by its own."""

    own: bool = False
    """Of local rewards a role's return has its own alone, for roles that play against each other; else it has all."""

    def adds_up(self) -> bool:
        """Unless a role's return is its own."""
        return not self.own
