"""Dr. MAS: whole-team episodes, each role compared with itself (arXiv:2602.08847)."""

from __future__ import annotations

from typing import Literal

from coterie.algorithms.base import RoleBaseline
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Member
from coterie.kernel.play import Play
from coterie.sampling.episodes import TEAM, WHOLE, by_role, collected, play_episodes


class DrMAS(RoleBaseline):
    """GRPO over episodes of a team, with mean and deviation of its own for every role.

    The paper's: one group for each task and role, (R - mean_role) / deviation_role; the outcome is shared.
    Its code also counts an episode once for each reply of the role, which is a second change at once:
    `count` says which. Ours: a role that spoke in one episode alone is not trained (its code reinforces it
    with A = R).
    """

    count: Literal["episode", "reply"] = "reply"
    """reply: an episode counts once per reply of the role, as in the paper's code. episode: it counts once."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task, grouped by role."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in by_role(played):
            whose = role if self.own else TEAM
            if self.count == "reply":
                members = episode.replies(drawn, self.team_weight, whose)
            else:
                members = [episode.member(drawn, self.team_weight, whose)]
            lots.setdefault((WHOLE, role), []).extend(members)
        return collected(play, task, played, lots)
