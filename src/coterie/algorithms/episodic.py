"""Base class of methods whose baseline does not come from other episodes of the same task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pydantic import Field

from coterie.kernel.algorithm import Algorithm
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group, Member, flat
from coterie.kernel.play import Play
from coterie.sampling.episodes import WHOLE, by_role, collected, play_episodes


class Episodic(Algorithm):
    """Base class on whole episodes, by default one a task; a role's return is team rewards plus its own local ones."""

    num_generations: int = Field(default=1, ge=1)
    """Number of episodes per task."""
    team_weight: float = Field(default=1.0, ge=0)
    """Weight of team rewards relative to local rewards."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task, with one group per role."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in by_role(played):
            lots.setdefault((WHOLE, role), []).append(episode.member(drawn, self.team_weight, role))
        return collected(play, task, played, lots, least=1)


def over_the_step(
    groups: Sequence[Group], earns: Callable[[Sequence[Member]], Sequence[float]]
) -> list[tuple[float, ...]]:
    """Computes advantages of members by comparing them with all others of their role in the step.

    Args:
        earns: one advantage per member, of all members of one role.

    Returns:
        for each group one number per member.
    """
    lots: dict[str, list[tuple[int, Member]]] = {}
    for at, group in enumerate(groups):
        lots.setdefault(group.key.role, []).extend((at, member) for member in group.members)
    earned: list[list[float]] = [[] for _ in groups]
    for lot in lots.values():
        for (at, _), advantage in zip(lot, earns([member for _, member in lot]), strict=True):
            earned[at].append(advantage)
    return [tuple(numbers) for numbers in earned]


def standardize_weighted(returns: Sequence[float], weights: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Computes advantages as (r - mean) / (s + eps), with weighted mean and population deviation s.

    Args:
        weights: how often each counts, such as its tokens.

    Returns:
        exactly 0 where all returns are equal.

    Source:
        REINFORCE++, arXiv:2501.03262, which normalises over the tokens of a batch.
    """
    total = math.fsum(weights)
    if flat(list(returns)) or not total:
        return [0.0] * len(returns)
    mean = math.fsum(weight * value for weight, value in zip(weights, returns, strict=True)) / total
    squares = math.fsum(weight * (value - mean) ** 2 for weight, value in zip(weights, returns, strict=True))
    spread = math.sqrt(squares / total)
    return [(value - mean) / (spread + eps) for value in returns]
