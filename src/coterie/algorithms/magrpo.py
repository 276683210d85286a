"""MAGRPO: cooperation as a Dec-POMDP with one joint reward (arXiv:2508.04652)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import pstdev
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.algorithms import credit
from coterie.errors import ConfigError
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.environment import Environment, Task
from coterie.kernel.group import Collected, Group, flat
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie.sampling.expand import Expansion, ExpansionPlan, JointActions, expand

Baseline = Literal["none", "mean", "leave_one_out", "greedy"]


class MAGRPO(Algorithm):
    """Multi-agent GRPO: roles speak at once and share one reward; a reply is judged by the joint actions it is in.

    Each role has its own group at each node: its G replies to its own prompt. It is trained with what
    the joint actions returned, and acts alone: centralised training, decentralised execution. With one
    role and one turn it is GRPO without deviation, ratio and clip.

    The paper's: the joint reward, R = r + what follows, A = R - mean, the sum of A log pi over a
    reply's tokens without ratio, clip or deviation; averages over branches and groups.
    From its library (CoMLRL): "aligned" and "cross" joint actions, the G^t tree, the names of the
    baselines. Ours: cross credit is a mean (the library sums), the greedy baseline is ReMax's (the library
    subtracts the maximum), `discount` is honoured and weighs depth t by discount^t, and one optimizer
    step trains all turns.
    """

    num_generations: int = Field(default=4, ge=2)
    """Number of replies per role at each node."""
    joint: JointActions = "aligned"
    """Joint actions of a node. aligned: the k-th replies of all roles form one; cross: every combination of replies."""
    max_joint_actions: int = Field(default=64, ge=2)
    """Maximum number of joint actions per node with cross, which makes num_generations ** (number of roles).

    If a team grows during an episode and exceeds the maximum, the joint actions of that node are aligned.
    """
    max_nodes: int = Field(default=256, ge=1)
    """Maximum number of nodes per task with `expansion = "all"`. Every decision point multiplies their number by the
    number of joint actions."""
    expansion: Expansion = "all"
    """all: every joint action becomes a node. greedy: only the best one is continued, which is biased but cheap."""
    baseline: Baseline = "mean"
    """Baseline that is subtracted from returns. none: MAREINFORCE; mean: MAGRPO; leave_one_out: MARLOO; greedy: ReMax,
    the return of the greedy joint action."""
    scale: Literal["none", "deviation"] = "none"
    """deviation: advantages are divided by the standard deviation of the returns, without being centred again."""
    discount: float = Field(default=1.0, ge=0, le=1)
    """Discount factor per decision point."""
    team_weight: float = Field(default=1.0, ge=0)
    """Weight of team rewards relative to local rewards. The joint reward is the sum of both."""

    loss: ClassVar[Mapping[str, Any]] = {"name": "policy_gradient", "denominator": "tasks"}
    """Loss as published: neither ratio nor clip, and a reply's tokens are summed."""

    def inert(self) -> dict[str, str]:
        """Returns the bounds without effect: on joint actions if aligned, on nodes if the expansion is greedy."""
        inert: dict[str, str] = {}
        if self.joint == "aligned":
            inert["max_joint_actions"] = "joint = 'aligned' makes num_generations joint actions"
        if self.expansion == "greedy":
            inert["max_nodes"] = "expansion = 'greedy' makes one node a point"
        return super().inert() | inert

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError: cross would make more joint actions than `max_joint_actions`."""
        actions = self.num_generations ** len(environment.roles)
        if self.joint == "cross" and actions > self.max_joint_actions:
            raise ConfigError(
                f"joint = 'cross' makes {self.num_generations}^{len(environment.roles)} = {actions} joint actions of a "
                f"node, more than algorithm.max_joint_actions = {self.max_joint_actions}; raise it, lower "
                "num_generations, or use joint = 'aligned'"
            )

    def adds_up(self) -> bool:
        """Returns True: a joint action has one return, the rewards of all roles."""
        return True

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays a task, continues the joint actions of its decision points, and returns their groups."""
        plan = ExpansionPlan(
            num_generations=self.num_generations,
            joint=self.joint,
            expansion=self.expansion,
            discount=self.discount,
            team_weight=self.team_weight,
            max_nodes=self.max_nodes,
            max_joint_actions=self.max_joint_actions,
            greedy_baseline=self.baseline == "greedy",
        )
        return await expand(play, task, plan)

    def advantages(self, group: Group) -> tuple[float, ...]:
        """Computes returns minus the chosen baseline, divided by their deviation if `scale` says so."""
        returns = group.values
        match self.baseline:
            case "none":
                centered = credit.none(returns)
            case "mean":
                centered = credit.center(returns)
            case "leave_one_out":
                centered = credit.leave_one_out(returns)
            case "greedy":
                assert group.baseline is not None
                centered = against(returns, group.baseline)
        return tuple(scaled(centered, returns) if self.scale == "deviation" else centered)


def against(returns: Sequence[float], baseline: float) -> list[float]:
    """Computes r minus a baseline that does not depend on the returns, such as the return of the greedy reply.

    Source:
        ReMax, arXiv:2310.10505.
    """
    if flat([*returns, baseline]):
        return [0.0] * len(returns)
    return [value - baseline for value in returns]


def scaled(advantages: Sequence[float], returns: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Divides advantages by (s + eps), s the population deviation of their returns; never centred again.

    Returns:
        exactly 0 where all returns are equal: a tiny spread would be blown up.
    """
    if flat(list(returns)):
        return [0.0] * len(returns)
    spread = pstdev(returns)
    return [advantage / (spread + eps) for advantage in advantages]
