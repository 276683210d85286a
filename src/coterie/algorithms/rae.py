"""RAE: role-conditioned advantage estimation, for self-play (SPIRAL, arXiv:2506.24119)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from coterie.algorithms.base import Algorithm, State
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group
from coterie.kernel.play import Play
from coterie.sampling.episodes import episodes


class RAE(Algorithm):
    """Every episode against a running mean of its role's returns; nothing has to be played twice.

    A = R - b, then b <- decay b + (1 - decay) R, b the role's and 0 at first; R is the role's own: the team's
    rewards and its local ones. For games: one side's win is the other's loss, and each has its own baseline.

    The paper's: a baseline a game and role, decay 0.95, no scale. Ours: an environment is one game; episodes are
    folded in order of task, so that a run that is resumed goes on with the same baselines.
    """

    num_generations: int = Field(1, ge=1)
    """Episodes of a task."""
    team_weight: float = Field(1.0, ge=0)
    """Weight of team rewards beside local ones."""
    decay: float = Field(0.95, ge=0, lt=1)
    """How much of a role's baseline stays when an episode is folded in."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """`num_generations` episodes of one task, a group a role."""
        return await episodes(
            play,
            task,
            num_generations=self.num_generations,
            team_weight=self.team_weight,
            by="role",
            own=True,
            lone=True,
        )

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """R - b, episode by episode; state: b by role."""
        baselines = dict(state)
        earned: dict[int, tuple[float, ...]] = {}
        for at in sorted(range(len(groups)), key=lambda at: groups[at].key):
            role, found = groups[at].key.role, []
            for value in groups[at].values:
                baseline = baselines.get(role, 0.0)
                found.append(value - baseline)
                baselines[role] = self.decay * baseline + (1 - self.decay) * value
            earned[at] = tuple(found)
        return [earned[at] for at in range(len(groups))], baselines
