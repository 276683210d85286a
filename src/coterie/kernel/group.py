"""Groups: samples that may be compared, made where they are sampled.

A group says what its members share. For `scope = "prompt"`, this module checks that prompt ids and policy
are equal; the run decides how old the sampling weights may be. `scope = "task"` compares whole episodes with different
prompts; an algorithm must request it explicitly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, NamedTuple

from coterie.errors import GroupError
from coterie.kernel.episode import Log, Sample

Scope = Literal["prompt", "task"]


class Key(NamedTuple):
    """The name of a group. path: its place in the task, for people: what code needs stands in the group."""

    task: str
    episode: int
    path: str
    role: str


@dataclass(frozen=True, slots=True)
class Member:
    """One thing that is compared: a sample, or the samples of an episode.

    samples: what is trained with this member's advantage. returns: one a continuation, usually
    one. parts: the return's rewards by name, as weighted. episode: which of the task's episodes it comes from.
    """

    samples: tuple[Sample, ...]
    returns: tuple[float, ...]
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    episode: int = 0

    @property
    def value(self) -> float:
        """Mean of the member's returns."""
        return fmean(self.returns)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of members that may be compared.

    weight: the factor of the group in the loss. committed: index of the member with which the episode continued.
    baseline: the baseline of the returns, if it does not come from the group itself. last: there is no later
    decision. pooled: equal replies were valued once and share their returns. point: the decision point that all
    members reply at; None if they come from several. history: number of the role's earlier prompts that members share.

    Raises:
        GroupError: no member, or members that its scope does not allow.
    """

    key: Key
    scope: Scope
    members: tuple[Member, ...]
    weight: float = 1.0
    committed: int | None = None
    baseline: float | None = None
    last: bool = False
    pooled: bool = False
    point: int | None = None
    history: int = 0

    def __post_init__(self) -> None:
        if not self.members or not all(member.samples and member.returns for member in self.members):
            raise GroupError(f"group {self.key}: every member needs a sample and a return")
        if self.scope == "prompt":
            if any(len(member.samples) != 1 for member in self.members):
                raise GroupError(f"group {self.key}: a member of scope 'prompt' is one sample")
            first = self.members[0].samples[0]
            for (sample,) in (member.samples for member in self.members):
                if (sample.prompt_ids, sample.policy) != (first.prompt_ids, first.policy):
                    raise GroupError(
                        f"group {self.key}: its samples differ in prompt or policy; samples with different prompts "
                        "may be compared only under scope 'task'"
                    )

    @property
    def values(self) -> tuple[float, ...]:
        """Return of each member."""
        return tuple(member.value for member in self.members)

    @property
    def policy(self) -> str:
        """Policy of the first sample; in scope "prompt", all samples are of this policy."""
        return self.members[0].samples[0].policy

    @property
    def alike(self) -> bool:
        """True if all members said the same to the same prompts: their returns differ by chance alone."""
        first, *others = (member.samples for member in self.members)
        return all(
            len(other) == len(first)
            and all(
                (one.completion_ids, one.policy, one.prompt_ids) == (two.completion_ids, two.policy, two.prompt_ids)
                for one, two in zip(other, first, strict=True)
            )
            for other in others
        )

    @property
    def live(self) -> bool:
        """True if there is something to learn: returns differ, from each other or from the group's baseline.

        Members that are alike teach nothing without such a baseline: their gradients cancel.
        """
        if self.baseline is not None:
            return not flat((*self.values, self.baseline))
        return not flat(self.values) and not self.alike


def flat(returns: tuple[float, ...] | list[float]) -> bool:
    """Returns True if returns are equal up to rounding: a spread below 1e-6 of the largest of |r| and 1."""
    spread = max(returns) - min(returns)
    return spread <= 1e-6 * max(1.0, *(abs(value) for value in returns))


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of sampling one task: groups to learn from, and the episodes played."""

    groups: tuple[Group, ...]
    logs: tuple[Log, ...]
