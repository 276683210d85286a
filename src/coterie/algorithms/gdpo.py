"""GDPO: each reward is standardised by itself before they are added (arXiv:2601.05242)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import pstdev

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.credit import CREDIT
from coterie.errors import ConfigError
from coterie.kernel.algorithm import State
from coterie.kernel.environment import Environment
from coterie.kernel.group import Group
from coterie.kernel.team import Team

EPS = 1e-6
"""Added to the deviation of a step's advantages."""


class GDPO(ATGRPO):
    """AT-GRPO's groups, in which each reward is standardised by itself before they are added.

    A = sum over rewards k of w_k (r_k - mean_k) / (s_k + eps) within the group, divided by the deviation of these sums
    over all replies of the policy in the step. Where rewards are added first, the one with the largest spread decides.

    The paper's: both normalisations, and weights that apply between them. Ours: the groups; `team_weight` is w_k of
    team rewards and 1 that of local ones; a reward that a reply did not get counts as 0; the batch is a policy's step.
    """

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError if `advantage` does not standardise, or at_grpo cannot train this team."""
        super().check(environment, team)
        if not self.advantage.startswith("standardize"):
            raise ConfigError(
                f"algorithm.advantage = '{self.advantage}' leaves each reward its size, and gdpo takes it away; use "
                '"standardize" or "standardize_population", or algorithm.name = "at_grpo"'
            )

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Computes the sums of standardised rewards, scaled to deviation 1 over each policy's step."""
        totals = [self.advantages(group) for group in groups]
        lots: dict[str, list[float]] = {}
        for group, total in zip(groups, totals, strict=True):
            lots.setdefault(group.policy, []).extend(total)
        spread = {policy: pstdev(lot) + EPS for policy, lot in lots.items()}
        scaled = [
            tuple(one / spread[group.policy] for one in total) for group, total in zip(groups, totals, strict=True)
        ]
        return scaled, state

    def advantages(self, group: Group) -> tuple[float, ...]:
        """Computes the weighted sum of the standardised rewards of each member."""
        total = [0.0] * len(group.members)
        for name in sorted({name for member in group.members for name in member.parts}):
            weight = self.team_weight if name.startswith("team/") else 1.0
            earned = CREDIT[self.advantage]([member.parts.get(name, 0.0) for member in group.members])
            total = [before + weight * one for before, one in zip(total, earned, strict=True)]
        return tuple(total)
