"""RAE: role-conditioned advantage estimation, for self-play (SPIRAL, arXiv:2506.24119)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from coterie.algorithms.episodic import Episodic
from coterie.kernel.algorithm import State
from coterie.kernel.group import Group


class RAE(Episodic):
    """A running mean of a role's returns as the baseline of every episode; nothing has to be played twice.

    A = R - b, then b <- decay b + (1 - decay) R, b the role's and 0 at first; R is the role's own: the team's
    rewards and its local ones. For games: one side's win is the other's loss, and each has its own baseline.

    The paper's: a baseline a game and role, decay 0.95, no scale. Ours: an environment is one game; episodes are
    folded in order of task, so that a run that is resumed goes on with the same baselines.
    """

    decay: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the moving average that is a role's baseline."""

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Computes advantages R - b, episode by episode; the state is the baseline b of each role."""
        baselines = dict(state)
        earned: dict[int, tuple[float, ...]] = {}
        for at in sorted(range(len(groups)), key=lambda at: groups[at].key):
            role, advantages = groups[at].key.role, []
            for value in groups[at].values:
                baseline = baselines.get(role, 0.0)
                advantages.append(value - baseline)
                baselines[role] = self.decay * baseline + (1 - self.decay) * value
            earned[at] = tuple(advantages)
        return [earned[at] for at in range(len(groups))], baselines
