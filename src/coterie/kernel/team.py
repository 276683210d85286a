"""The team: which role is played by which policy, and which sample trains which policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.errors import ConfigError, GroupError
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group


@dataclass(frozen=True, slots=True)
class Team:
    """Roles and the policy that plays each. frozen: policies that are never trained.

    Raises:
        ConfigError: it has no role.
    """

    roles: Mapping[str, str]
    frozen: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.roles:
            raise ConfigError("a team needs at least one role")

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies of the team, each once, in order of name."""
        return tuple(sorted(set(self.roles.values())))

    @property
    def trained(self) -> tuple[str, ...]:
        """Policies that learn, in order of name."""
        return tuple(name for name in self.policies if name not in self.frozen)

    def learns(self, role: str) -> bool:
        """Returns True if the replies of a role train a policy."""
        return self.roles[role] not in self.frozen


@dataclass(frozen=True, slots=True)
class Graded:
    """A sample to train on, with the group's weight and its member's advantage.

    share: 1 / (tasks x members of its group): its weight in a mean over the tasks of the step.
    """

    sample: Sample
    advantage: float
    weight: float
    group: str
    share: float = 1.0


CANCELS = 1e-9
"""Share of the largest advantage below which the sum of equal replies' advantages counts as zero."""


def count_tasks(groups: Sequence[Group]) -> int:
    """Returns the number of tasks, or base episodes of them, that the groups come from."""
    return len({(group.key.task, group.key.episode) for group in groups})


def route(
    team: Team, groups: Sequence[Group], advantages: Sequence[Sequence[float]], *, tasks: int | None = None
) -> dict[str, list[Graded]]:
    """Returns each trained policy's experience: exactly the samples of the roles it plays, each once.

    Groups without spread are among them, with advantage 0: the loss's mean counts them. So are groups whose members
    are alike and whose advantages sum to zero: their gradients cancel. The order is the groups'. A sample that is in
    several groups counts as one of the first, with the sum of its advantages, each times the weight of its group.

    Args:
        advantages: for each group, one number a member.
        tasks: how many the step's groups came from, before any was left out; None: these.

    Returns:
        for every trained policy of the team, its graded samples, possibly none.

    Raises:
        GroupError: a sample was drawn from another policy than its role's, or has another one's seed.
    """
    routed: dict[str, list[Graded]] = {policy: [] for policy in team.trained}
    places: dict[int, int] = {}
    tasks = count_tasks(groups) if tasks is None else tasks
    for group, earned in zip(groups, advantages, strict=True):
        if len(earned) != len(group.members):
            raise GroupError(f"group {group.key}: {len(group.members)} members, {len(earned)} advantages")
        nothing = cancels(group, earned)
        name = "/".join(map(str, group.key))
        share = 1 / (tasks * len(group.members))
        for member, credit in zip(group.members, earned, strict=True):
            for sample in member.samples:
                if team.roles.get(sample.role) != sample.policy:
                    raise GroupError(f"group {group.key}: role {sample.role} was played by {sample.policy}")
                if sample.policy in team.frozen:
                    continue
                mine = routed[sample.policy]
                more = Graded(sample, 0.0 if nothing else credit, group.weight, name, share)
                if (place := places.setdefault(sample.seed, len(mine))) < len(mine):
                    before = mine[place]
                    if before.sample != sample:
                        raise GroupError(f"group {group.key}: two different samples have the seed {sample.seed}")
                    total = before.advantage * before.weight + more.advantage * more.weight
                    mine[place] = replace(before, advantage=total, weight=1.0)
                else:
                    mine.append(more)
    return routed


def cancels(group: Group, earned: Sequence[float]) -> bool:
    """Returns True if a group's advantages come to nothing: its members said the same, and they sum to zero."""
    return group.alike and abs(math.fsum(earned)) <= CANCELS * max(map(abs, earned))


def teaches(group: Group, earned: Sequence[float]) -> bool:
    """Returns True if there is something to learn from a group: in itself, or by its advantages."""
    return group.live or (any(earned) and not cancels(group, earned))
