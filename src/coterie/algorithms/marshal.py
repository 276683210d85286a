"""MARSHAL's idea: turn-level credit in self-play, normalised for each role (arXiv:2510.15414)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from coterie.algorithms.episodic import Episodic, over_the_step, standardize_weighted
from coterie.kernel.algorithm import State
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group, Member
from coterie.kernel.play import Play
from coterie.sampling.episodes import WHOLE, by_role, collected, play_episodes
from coterie.sampling.to_go import members_to_go


class Marshal(Episodic):
    """Credit by what followed a reply: A = (G - mean) / deviation, over all replies of its role in the step.

    G is what came after a reply: the team's rewards and the role's own local ones, from that reply to the end.

    The paper's: credit by turn without a critic, a normalisation for each role. Ours: rewards are summed first and the
    mean is subtracted then. The published code subtracts the mean from each turn's reward before it sums; its baseline
    is then mean x (turns left), so that longer games pay where the mean is negative. An environment is one game.
    """

    discount: float = Field(default=1.0, ge=0, le=1)
    """Discount factor per decision of the role."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task, with one group per role; each reply is a member."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in by_role(played):
            lots.setdefault((WHOLE, role), []).extend(members_to_go(episode, drawn, self.team_weight, self.discount))
        return collected(play, task, played, lots, least=1)

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Standardises the returns of each role's replies over the step."""
        return over_the_step(groups, _standardized), state


def _standardized(members: Sequence[Member]) -> list[float]:
    return standardize_weighted([member.value for member in members], [1.0] * len(members))
