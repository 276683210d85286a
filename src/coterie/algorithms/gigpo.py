"""GiGPO: groups of steps inside groups of episodes (arXiv:2505.10978); with a history, HGPO (arXiv:2602.22817)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import Field

from coterie.algorithms.base import RoleBaseline
from coterie.kernel.algorithm import State
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play
from coterie.sampling.episodes import WHOLE, Episode, by_role, by_team, collected, play_episodes
from coterie.sampling.to_go import members_to_go


class GiGPO(RoleBaseline):
    """Episodes of a task are compared, and so are the replies to the same prompt in these episodes.

    A = A_E + step_weight A_S: the episode's return among the task's episodes, and the discounted rewards that
    followed a reply among all replies of the task to the same prompt. No branch is played for it.

    The paper's: the two levels and their sum, discount 0.95, weight 1, a state met twice counted twice, `advantage`
    "standardize" or "center". Ours: what makes two states one is the whole prompt of the role (there, the
    observation without history); what follows is the team's rewards and the role's own; with `own`, A_E is a role's
    among its episodes, and else the team's. Where no prompt is met twice it is `mas_grpo`.

    With `history` = K, A_S is HGPO's: replies are also compared with those of which the last 1 to K prompts of the role
    before are equal too, and A_S is the mean over these groups, weighted by (k + 1)^history_power, k the number of
    equal prompts; a group of one is left out. HGPO's own: the nested groups, the weights and their power 1, K 2 or 4,
    no episode level (`episode_weight` = 0), and the population deviation (`advantage` = "standardize_population").
    """

    episode_weight: float = Field(default=1.0, ge=0)
    """Weight of the episode-level advantage. 0: only replies to the same prompt are compared, as in HGPO."""
    step_weight: float = Field(default=1.0, gt=0)
    """Weight of the step-level advantage relative to the episode-level advantage. The first compares replies to the
    same prompt, the second compares episodes."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Discount factor per decision of the role."""

    history: int = Field(default=0, ge=0)
    """Number of earlier prompts of the role by which replies to the same prompt are grouped again, as in HGPO."""
    history_power: float = Field(default=1.0, ge=0, le=10)
    """Exponent of the weights of these groups. A group with k equal prompts has the weight (k + 1)^history_power."""

    def inert(self) -> dict[str, str]:
        """Returns the power as a setting without effect if there is no history: a reply then has one group."""
        return {} if self.history else {"history_power": "history = 0"}

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Computes each group's advantages; the weights of a reply's step-level groups are made to sum to 1."""
        weights = [_weight(group, self.history_power) for group in groups]
        totals: dict[int, float] = {}
        for group, weight in zip(groups, weights, strict=True):
            for member in group.members if weight else ():
                sample = member.samples[0].seed
                totals[sample] = totals.get(sample, 0.0) + weight
        earned: list[tuple[float, ...]] = []
        for group, weight in zip(groups, weights, strict=True):
            shares = [weight / totals[m.samples[0].seed] if weight else self.episode_weight for m in group.members]
            earned.append(tuple(share * one for share, one in zip(shares, self.advantages(group), strict=True)))
        return earned, state

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task, and also groups replies to the same prompts in them."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in (by_role if self.own else by_team)(played):
            lots.setdefault((WHOLE, role), []).append(episode.member(drawn, self.team_weight, role))
        found = collected(play, task, played, lots)
        return replace(found, groups=(*found.groups, *self._at_states(task, played)))

    def _at_states(self, task: Task, played: Sequence[Episode]) -> Iterator[Group]:
        """Yields groups of two and more replies of a role to the same prompt, wherever in the task's episodes.

        With a history, there are further groups of those of which so many earlier prompts of the role are equal too,
        for each number up to it.
        """
        lots: dict[tuple[str, tuple[tuple[int, ...], ...]], list[Member]] = {}
        for role, episode, drawn in by_role(played):
            for one, member in zip(drawn, members_to_go(episode, drawn, self.team_weight, self.discount), strict=True):
                before = [
                    other.sample.prompt_ids
                    for other in drawn
                    if other.point < one.point and other.speaker == one.speaker
                ]
                for earlier in range(min(len(before), self.history) + 1):
                    prompts = (*before[len(before) - earlier :], one.sample.prompt_ids)
                    lots.setdefault((role, prompts), []).append(member)
        for number, ((role, prompts), members) in enumerate(lots.items()):
            earlier = len(prompts) - 1
            key = Key(task.id, 0, f"state {number}+{earlier}" if earlier else f"state {number}", role)
            if len(members) > 1:
                yield Group(key, "prompt", tuple(members), weight=self.step_weight, history=earlier)


def _weight(group: Group, power: float) -> float:
    """Returns the weight of a group of replies to equal prompts, not yet a share; 0 for a group of episodes."""
    if group.scope == "task":
        return 0.0
    return (group.history + 2) ** power
