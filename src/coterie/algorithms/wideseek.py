"""WideSeek-R1: a lead and parallel sub-agents, every agent of an episode with the same weight (arXiv:2602.04634)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from coterie.algorithms.base import GroupBaseline
from coterie.algorithms.credit import CREDIT
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group
from coterie.kernel.play import Play
from coterie.sampling.episodes import TEAM, WHOLE, collected, play_episodes


class WideSeek(GroupBaseline):
    """GRPO over episodes of the whole team, in which each role of an episode has the same weight.

    All replies of an episode have its standardised return as advantage. Of it a reply is trained with the share
    (1 / roles that spoke) x (its tokens / all tokens of its role in the episode).

    The paper's: the advantage, the weights. Ours: an agent is a role; there, each call of a sub-agent is an agent of
    its own, so a lead that calls more of them counts less itself.
    """

    loss: ClassVar[Mapping[str, Any]] = {"name": "clip", "denominator": "sequences"}

    def adds_up(self) -> bool:
        """Returns True: an episode has one return, the rewards of all roles."""
        return True

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task; each reply is a member."""
        played = await play_episodes(play, task, self.num_generations)
        replies = [reply for episode in played for reply in episode.replies(episode.drawn, self.team_weight)]
        return collected(play, task, played, {(WHOLE, TEAM): replies})

    def advantages(self, group: Group) -> tuple[float, ...]:
        """Computes the advantage of each episode's return, times each reply's share of its episode."""
        values: dict[int, float] = {}
        tokens: dict[int, dict[str, int]] = {}
        for member in group.members:
            (sample,) = member.samples
            values[member.episode] = member.value
            said = tokens.setdefault(member.episode, {})
            said[sample.role] = said.get(sample.role, 0) + len(sample.completion_ids)
        if len(values) < 2:
            return (0.0,) * len(group.members)
        earned = dict(zip(values, CREDIT[self.advantage](list(values.values())), strict=True))
        shares: list[float] = []
        for member in group.members:
            (sample,), said = member.samples, tokens[member.episode]
            shares.append(len(sample.completion_ids) / said[sample.role] / len(said))
        return tuple(share * earned[member.episode] for share, member in zip(shares, group.members, strict=True))
