"""GiGPO: groups of steps inside groups of episodes (arXiv:2505.10978)."""

from __future__ import annotations

from pydantic import Field

from coterie.algorithms.base import RoleBaseline
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.sampling.episodes import episodes


class GiGPO(RoleBaseline):
    """Episodes of a task are compared, and so are the replies to the same prompt in these episodes.

    A = A_E + step_weight A_S: the episode's return among the task's episodes, and the discounted rewards that
    followed a reply among all replies of the task to the same prompt. No branch is played for it.

    The paper's: the two levels and their sum, discount 0.95, weight 1, a state met twice counted twice, `advantage`
    "standardize" or "center". Ours: what makes two states one is the whole prompt of the role (there, the
    observation without history); what follows is the team's rewards and the role's own; with `own`, A_E is a role's
    among its episodes, and else the team's. Where no prompt is met twice it is `mas_grpo`.
    """

    step_weight: float = Field(default=1.0, gt=0)
    """Weight of the step-level advantage relative to the episode-level advantage. The first compares replies to the
    same prompt, the second compares episodes."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Discount factor per decision of the role."""

    async def collect(self, play: Play, task: Task) -> Collected:
        """`num_generations` episodes of one task, and groups of the same prompts in them."""
        return await episodes(
            play,
            task,
            num_generations=self.num_generations,
            team_weight=self.team_weight,
            by="role" if self.own else "team",
            own=self.own,
            step_weight=self.step_weight,
            discount=self.discount,
        )
