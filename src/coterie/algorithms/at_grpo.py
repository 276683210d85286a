"""AT-GRPO: agent- and turn-wise GRPO (Stronger-MAS, arXiv:2510.11062)."""

from __future__ import annotations

from typing import Literal

from coterie.algorithms.base import GroupBaseline
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment, Task
from coterie.kernel.episode import Horizon
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie.sampling.tree import Commit, Joint, tree


class ATGRPO(GroupBaseline):
    """Groups per task, agent and turn, sampled as a tree along one committed episode.

    At every decision point K replies to one prompt are drawn and valued, r = alpha * team + local.
    Advantages are computed within this group. The episode continues with the best reply (the paper's
    rule) or with a random one. All K replies are trained. With one role and one turn it is GRPO.

    The paper's: the group key, r with alpha = 1, greedy commit, a clipped loss without KL.
    Ours: `horizon`, which says how far r reaches (the paper scores "that turn's" reward);
    `commit = "random"`; and that the loss is a mean over all tokens of a policy's step.
    """

    horizon: Literal["turn", "point"] = "turn"
    """Rewards that count for a candidate reply. turn: until the end of its turn; point: until the next decision."""
    commit: Commit = "greedy"
    """The episode continues with the best valid candidate (greedy) or with a random one."""
    joint: Joint = "aligned"
    """Combination of simultaneous replies. aligned: the k-th replies of all roles form one joint answer; per_role:
    the replies of one role are combined with the first replies of the others."""

    @property
    def reach(self) -> Horizon:
        """Horizon of local rewards, as the setting `horizon` says."""
        return self.horizon

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError: a judge speaks before the reward, and the horizon ends before that."""
        if self.horizon == "point" and environment.judges():
            raise ConfigError(
                "algorithm.horizon = 'point' ends before the judge has spoken, so nobody would be rewarded; set "
                'algorithm.horizon = "turn"'
            )

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays a task as a tree and returns its groups and its committed episode."""
        return await tree(
            play,
            task,
            num_generations=self.num_generations,
            horizon=self.horizon,
            team_weight=self.team_weight,
            commit=self.commit,
            joint=self.joint,
        )
