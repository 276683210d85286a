"""Settings that group-relative methods share."""

from __future__ import annotations

from pydantic import Field

from coterie.algorithms.credit import CREDIT, Credit
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.group import Group


class GroupBaseline(Algorithm):
    """Settings that all group-relative methods share."""

    num_generations: int = Field(default=8, ge=2)
    """Group size: the number of replies or episodes that are compared with each other."""
    team_weight: float = Field(default=1.0, ge=0)
    """Weight of team rewards relative to local rewards."""
    advantage: Credit = "standardize"
    """Function that turns the returns of a group into advantages."""

    def advantages(self, group: Group) -> tuple[float, ...]:
        """Returns one advantage per member, by the function of the group's returns that `advantage` names."""
        return tuple(CREDIT[self.advantage](group.values))


class RoleBaseline(GroupBaseline):
    """Settings of the methods that judge episodes by all rewards or each role by its own rewards."""

    own: bool = False
    """Local rewards that a role's return contains, besides the team rewards. true: only its own, for competing roles.
    false: those of all roles."""

    def adds_up(self) -> bool:
        """Returns True unless a role's return contains no local rewards but its own."""
        return not self.own
