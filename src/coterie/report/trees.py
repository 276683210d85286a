"""A task of a saved rollout as people look at it: its groups, and what their members said, earned and were credited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log

from markupsafe import Markup

from coterie.kernel.episode import Log, Sample
from coterie.kernel.group import Group
from coterie.report.charts import tree_picture
from coterie.report.text import why_comparable
from coterie.run.records import Played

Words = Mapping[str, Callable[[int], str]]
"""Functions that give the text of a token, by policy."""
LIKELY = 0.9, 0.5, 0.1, 0.01
"""Probabilities that part tokens into five kinds, from 0, as good as sure, to 4, hardly to be expected."""
MOST = 700.0
"""Largest logarithm of a ratio."""
SHIFTS = 1 / 2, 1 / 1.1, 1.1, 2.0
"""Ratios that part tokens into five kinds, from 0, much less likely by other weights, to 4, much more."""


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token: its text, its probability when it was sampled, and which of five kinds that is."""

    text: str
    probability: float
    kind: int
    ratio: float | None = None
    """Ratio of its probability by other weights to that by which it was sampled, where those were asked."""

    @property
    def shift(self) -> int:
        """Kind of the token's ratio, one of five: from 0, much less likely now, over 2, as before, to 4, much more."""
        return 2 if self.ratio is None else sum(self.ratio >= least for least in SHIFTS)


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member of a group. tokens: none if their text is not known. strength: advantage as a share of the largest."""

    text: str
    tokens: Sequence[Token]
    value: float
    parts: str
    advantage: float
    strength: float
    committed: bool
    cut: bool


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group of a task. number: its place in the task, from 0. prompt: its members' prompt as text, if known."""

    number: int
    key: str
    role: str
    path: str
    why: str
    scope: str
    live: bool
    prompt: str
    members: Sequence[MemberSeen]

    @property
    def best(self) -> float:
        """Highest return of a member."""
        return max(member.value for member in self.members)


@dataclass(frozen=True, slots=True)
class TreeSeen:
    """The tree of a task. picture: an SVG with a column a group."""

    task: str
    solved: bool
    picture: Markup
    groups: Sequence[GroupSeen]
    logs: Sequence[Log]

    @property
    def live(self) -> int:
        """Number of groups that have something to teach."""
        return sum(group.live for group in self.groups)


def seen(played: Played, words: Words | None = None, address: Callable[[int], str] | None = None) -> TreeSeen:
    """Returns a task's tree.

    Args:
        words: the texts of tokens, by policy, if single tokens are shown.
        address: where a group is looked at, by its number; the picture leads there.
    """
    groups = [
        _group(number, group, earned, words or {})
        for number, (group, earned) in enumerate(zip(played.collected.groups, _credit(played), strict=True))
    ]
    columns = [[(one.value, one.advantage, one.committed) for one in group.members] for group in groups]
    addresses = [address(group.number) for group in groups] if address else []
    logs = played.collected.logs
    picture = Markup(tree_picture(columns, "a training tree", addresses))  # noqa: S704  (numbers, and addresses of ours)
    return TreeSeen(logs[0].task if logs else "?", any(log.solved for log in logs), picture, groups, logs)


def shifted(group: GroupSeen, later: Sequence[Sequence[float]]) -> GroupSeen:
    """Returns the group with a ratio for each token. later: log-probabilities by other weights, in nats, by member."""
    members = [
        replace(member, tokens=[_moved(token, value) for token, value in zip(member.tokens, values, strict=True)])
        if member.tokens
        else member
        for member, values in zip(group.members, later, strict=True)
    ]
    return replace(group, members=members)


def _moved(token: Token, value: float) -> Token:
    """Returns the token with its ratio, which stays None if one of the two probabilities is not a usable number."""
    if not token.probability or not isfinite(value):
        return token
    return replace(token, ratio=exp(min(value - log(token.probability), MOST)))


def _credit(played: Played) -> Sequence[Sequence[float]]:
    """Returns the advantages of each group's members; zeros for a step that is not over."""
    return played.advantages or [(0.0,) * len(group.members) for group in played.collected.groups]


def _group(number: int, group: Group, earned: Sequence[float], words: Words) -> GroupSeen:
    most, live = max((abs(value) for value in earned), default=0.0) or 1.0, group.live
    members = [
        MemberSeen(
            text="\n".join(sample.text for sample in member.samples),
            tokens=_tokens(member.samples[-1], words) if len(member.samples) == 1 else (),
            value=member.value,
            parts=", ".join(f"{name} {value:+.2f}" for name, value in sorted(member.parts.items())),
            advantage=advantage,
            strength=abs(advantage) / most if live else 0.0,
            committed=place == group.committed,
            cut=any(sample.finish == "length" for sample in member.samples),
        )
        for place, (member, advantage) in enumerate(zip(group.members, earned, strict=True))
    ]
    first = group.members[0].samples[0]
    word = words.get(first.policy)
    prompt = "".join(map(word, first.prompt_ids)) if word and group.scope == "prompt" else ""
    key = group.key
    return GroupSeen(
        number, " / ".join(map(str, key)), key.role, key.path, why_comparable(group), group.scope, live, prompt,
        members,
    )  # fmt: skip


def _tokens(sample: Sample, words: Words) -> list[Token]:
    word = words.get(sample.policy)
    if word is None:
        return []
    likely = [exp(value) for value in sample.logprobs]
    return [
        Token(word(token), share, sum(share < least for least in LIKELY))
        for token, share in zip(sample.completion_ids, likely, strict=True)
    ]
