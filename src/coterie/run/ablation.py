"""Ablations of a team: one role is muted or replaced, or two roles are swapped.

    Ablation.parse("mute", "proposer")            the proposer says nothing
    Ablation.parse("swap", "proposer,planner")    each role is played by the other's policy
    Ablation.parse("replace", "planner=base")     the planner is played by its initial policy
    Ablation.parse("replace", "planner=RUN")      the planner is played by that role's policy in another run

The change in success is paired: both teams play the same tasks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from coterie.errors import ConfigError, nearest
from coterie.kernel.play import Seats
from coterie.kernel.team import Team
from coterie.run.evaluate import Z95, Evaluation

Kind = Literal["mute", "swap", "replace"]
BASE = "base"
"""Source of a replacement: the policy with which the run itself began."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One change to a team.

    Attributes:
        kind: "mute", "swap" or "replace".
        roles: the changed roles.
        source: for "replace", the source of the new policy: `base` or a run folder.
    """

    kind: Kind
    roles: tuple[str, ...]
    source: str = ""

    @classmethod
    def parse(cls, kind: Kind, text: str) -> Ablation:
        """Parses the value of a command-line option.

        Raises:
            ConfigError: the text does not have the form that this kind requires.
        """
        if kind not in get_args(Kind):
            raise ConfigError(
                f"unknown ablation '{kind}'{nearest(kind, get_args(Kind))}; it is {' or '.join(get_args(Kind))}"
            )
        names, _, source = text.partition("=")
        roles = tuple(name.strip() for name in names.split(","))
        wanted = {"mute": (1, False), "swap": (2, False), "replace": (1, True)}[kind]
        if (len(roles), bool(source)) != wanted or not all(roles) or len(set(roles)) < len(roles):
            form = {"mute": "ROLE", "swap": "ROLE,ROLE", "replace": "ROLE=base or ROLE=RUN"}[kind]
            raise ConfigError(f"--{kind} {text}: write it as --{kind} {form}")
        return cls(kind, roles, source)

    def __str__(self) -> str:
        return f"{self.kind} {','.join(self.roles)}" + (f"={self.source}" if self.source else "")

    def check(self, team: Team, absent: Collection[str] = ()) -> None:
        """Raises ConfigError if the team does not have a role, or if the ablation changes nothing.

        Args:
            absent: roles that are never asked in the evaluated split.
        """
        for role in self.roles:
            if role not in team.roles:
                raise ConfigError(f"--{self}: unknown role '{role}'; the roles are {', '.join(team.roles)}")
            if role in absent:
                raise ConfigError(f"--{self}: nobody asks '{role}' there: chance makes its moves; name another role")
        if self.kind == "swap" and len({team.roles[role] for role in self.roles}) == 1:
            raise ConfigError(f"--{self}: one policy plays both roles, so there is nothing to swap")

    def seats(self) -> Seats:
        """Returns the functions that play roles in place of a policy: a muted role always says nothing."""
        return dict.fromkeys(self.roles, lambda _: "") if self.kind == "mute" else {}

    def team(self, team: Team, replacement: str = "") -> Team:
        """Returns the team after the change of policies. replacement: the name of the new policy."""
        roles = dict(team.roles)
        if self.kind == "swap":
            first, second = self.roles
            roles[first], roles[second] = roles[second], roles[first]
        elif self.kind == "replace":
            roles[self.roles[0]] = replacement
        return Team(roles)


def every_ablation(team: Team, absent: Collection[str] = ()) -> list[Ablation]:
    """Returns all ablations: each role muted, each replaced by its start, each two of different policies swapped.

    Args:
        absent: roles that nobody asks where it is measured.
    """
    roles = [role for role in team.roles if role not in absent]
    if len(roles) == 1:
        return [Ablation("replace", (role,), BASE) for role in roles]
    return [
        *(Ablation("mute", (role,)) for role in roles),
        *(Ablation("replace", (role,), BASE) for role in roles),
        *(
            Ablation("swap", pair)
            for pair in itertools.combinations(roles, 2)
            if team.roles[pair[0]] != team.roles[pair[1]]
        ),
    ]


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of an ablation on success. low, high: the paired 95 % interval of the change."""

    ablation: str
    success: float
    change: float
    low: float
    high: float
    turns: float

    @classmethod
    def between(cls, ablation: Ablation | str, before: Evaluation, after: Evaluation) -> Change:
        """Returns the change from one evaluation to another on the same tasks."""
        change, low, high = paired(before.by_task, after.by_task)
        return cls(str(ablation), after.success, change, low, high, after.turns)

    def metrics(self, area: str) -> Mapping[str, float]:
        """Returns the change and its interval under the names of metrics, each of which begins with `area`."""
        return {f"{area}/change": self.change, f"{area}/change_low": self.low, f"{area}/change_high": self.high}


def paired(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean change over tasks, and its 95 % interval.

    Args:
        before, after: success by task, each in [0, 1], in one order.

    Returns:
        change, low, high, all in [-1, 1].

    Source:
        the adjusted Wald interval of Agresti and Min (2005, Statistics in Medicine 24:729) for matched pairs: half
        an observation is added to each cell, so that it has a width where no task changed. For several episodes a
        task the same with their mean.
    """
    differences = [later - earlier for earlier, later in zip(before, after, strict=True)]
    total, count = sum(differences), len(differences) + 2
    squares = sum(difference * difference for difference in differences) + 1
    middle = total / count
    half = Z95 * math.sqrt(max(0.0, squares - total * total / count)) / count
    return total / len(differences), max(-1.0, middle - half), min(1.0, middle + half)
