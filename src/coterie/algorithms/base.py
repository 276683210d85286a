"""What an algorithm is: a recipe of sampler, credit and loss; no trainer, no torch.

`run/train.py` asks an algorithm four things and never which one it is. A new one is a file beside
this one and a line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from pydantic import Field

from coterie.algorithms.credit import CREDIT, Credit
from coterie.kernel.environment import Environment, Settings, Task
from coterie.kernel.episode import Horizon
from coterie.kernel.group import Collected, Group
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie.learning.loss import Denominator, Loss, Surrogate

State = dict[str, Any]
"""What a method remembers from step to step: plain data, kept in every checkpoint."""


class Algorithm(Settings):
    """A method: its fields are its settings, its methods are its paper."""

    surrogate: Surrogate = "clip"
    """clip: clipped importance ratio; policy_gradient: the same without ratio or clip."""
    epsilon: float = Field(0.2, gt=0, lt=1)
    """Lower clip: the ratio's bound is 1 - epsilon."""
    epsilon_high: float | None = Field(None, gt=0)
    """Upper clip: the bound is 1 + epsilon_high; none: as epsilon."""
    kl: float = Field(0.0, ge=0)
    """Weight of KL to the starting weights; 0 keeps no reference."""
    denominator: Denominator = "tokens"
    """The loss is a mean over all tokens of a policy's step, over its sequences, or over tasks.

    The last sums a reply's tokens: the policy gradient as it stands.
    """

    @property
    def loss(self) -> Loss:
        """The record the learner reads."""
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        return Loss(self.surrogate, self.epsilon, high, self.kl, self.denominator)

    def inert(self) -> dict[str, str]:
        """Clip bounds have no effect without a clip."""
        if self.surrogate == "clip":
            return {}
        return dict.fromkeys(("epsilon", "epsilon_high"), "surrogate = 'policy_gradient' does not clip")

    @property
    def reach(self) -> Horizon:
        """How far a local reward may come after its reply and still be counted."""
        return "episode"

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

        Args: groups: those that were selected. state: what was returned a step ago; it is not changed.
        Returns: for each group a number a member, and what is remembered from here on.
        """
        raise NotImplementedError

    def select(self, groups: Sequence[Group], rng: Random) -> Sequence[Group]:
        """The groups of a step that are trained, perhaps with other weights; all, unless a method chooses.

        Args: rng: the step's own.
        """
        return groups


class GroupBaseline(Algorithm):
    """What the group-relative methods share: how many replies, and how returns become credit."""

    num_generations: int = Field(8, ge=2)
    """Replies, or episodes, that are compared with each other."""
    team_weight: float = Field(1.0, ge=0)
    """Weight of team rewards beside local ones."""
    advantage: Credit = "standardize"
    """How a group's returns become advantages."""

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Each group's by itself; nothing is remembered."""
        return [self.advantages(group) for group in groups], state

    def advantages(self, group: Group) -> tuple[float, ...]:
        """The chosen function of the group's returns, a number a member."""
        return tuple(CREDIT[self.advantage](group.values))
