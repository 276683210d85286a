"""Weights of M-GRPO (arXiv:2511.13288): a main agent and sub-agents that are called a varying number of times."""

from __future__ import annotations

from statistics import fmean

from coterie.algorithms.base import RoleBaseline
from coterie.algorithms.credit import CREDIT
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group, Member
from coterie.kernel.play import Play
from coterie.sampling.episodes import TEAM, WHOLE, by_role, collected, play_episodes


class MainSubGRPO(RoleBaseline):
    """GRPO over episodes, role by role, in which all calls of a role in an episode together count once.

    A role's return R of an episode is compared with its returns in the other episodes of the task. A reply of it has
    the advantage (R - mean) / deviation / d, d the number of its replies in that episode. So neither the baseline nor
    the gradient grows with how often a role is called.

    The paper's: separate credit of main agent and sub-agents, the standardised advantage. Ours: the weight 1 / d, where
    the paper duplicates or drops sub-agent trajectories until every episode has the same number. Another paper calls
    its multi-turn GRPO M-GRPO too, hence the name.
    """

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task, grouped by role; each reply is a member."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in by_role(played):
            replies = episode.replies(drawn, self.team_weight, role if self.own else TEAM)
            lots.setdefault((WHOLE, role), []).extend(replies)
        return collected(play, task, played, lots)

    def advantages(self, group: Group) -> tuple[float, ...]:
        """Computes the advantage of each episode's return, divided by the number of the episode's members."""
        calls: dict[int, list[float]] = {}
        for member in group.members:
            calls.setdefault(member.episode, []).append(member.value)
        if len(calls) < 2:
            return (0.0,) * len(group.members)
        earned = dict(zip(calls, CREDIT[self.advantage]([fmean(values) for values in calls.values()]), strict=True))
        return tuple(earned[member.episode] / len(calls[member.episode]) for member in group.members)
