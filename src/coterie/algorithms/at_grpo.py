"""AT-GRPO: agent- and turn-wise GRPO (Stronger-MAS, arXiv:2510.11062)."""

from __future__ import annotations

from typing import Literal

from coterie.algorithms.base import GroupBaseline
from coterie.kernel.environment import Task
from coterie.kernel.episode import Horizon
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.sampling.tree import Commit, Joint, tree


class ATGRPO(GroupBaseline):
    """Groups per task, agent and turn, sampled as a tree along one committed episode.

    At every point K replies to one prompt are drawn and valued, r = alpha * team + local; their
    advantages are the group's alone; the story goes on with the best (the paper's rule) or with any.
    Every branch is trained. With one role and one turn it is GRPO.

    The paper's: the group key, r with alpha = 1, greedy commit, a clipped loss without KL.
    Ours: `horizon`, which says how far r reaches (the paper scores "that turn's" reward);
    `commit = "random"`; and that the loss is a mean over all tokens of a policy's step.
    """

    horizon: Literal["turn", "point"] = "turn"
    """A candidate's reward reaches to the end of its turn, or to the next decision."""
    commit: Commit = "greedy"
    """The story goes on with the best valid candidate, or with a random one."""
    joint: Joint = "aligned"
    """Where roles speak at once: k-th replies together, or one role's against the partners' first."""

    @property
    def reach(self) -> Horizon:
        """The horizon."""
        return self.horizon

    async def collect(self, play: Play, task: Task) -> Collected:
        """The tree of one task."""
        return await tree(
            play,
            task,
            num_generations=self.num_generations,
            horizon=self.horizon,
            team_weight=self.team_weight,
            commit=self.commit,
            joint=self.joint,
        )
