"""MAS-GRPO, the naive baseline: it compares whole-team episodes of the same task."""

from __future__ import annotations

from typing import Literal

from coterie.algorithms.base import GroupBaseline
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.sampling.episodes import episodes


class MASGRPO(GroupBaseline):
    """GRPO over episodes of the whole team: one return for every sample of an episode.

    What AT-GRPO's paper (arXiv:2510.11062) compares with, with correct accounting: all samples of
    all roles and turns are trained, each once. Their prompts differ, which is its weakness: a
    sample is credited with everything that happened in its episode, before it too. `by` narrows what is
    compared, with the same returns: AT-GRPO's groups without its tree.
    """

    by: Literal["team", "role", "turn", "role_turn"] = "team"
    """Unit of comparison across the episodes of a task. team: whole episodes. role: the replies of a role in an
    episode; turn: the replies of a turn; role_turn: the replies of a role in a turn."""

    def adds_up(self) -> bool:
        """Returns True: an episode has one return, the rewards of all roles."""
        return True

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task."""
        return await episodes(
            play, task, num_generations=self.num_generations, team_weight=self.team_weight, by=self.by
        )
