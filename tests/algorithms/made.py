"""Groups made by hand."""

from __future__ import annotations

from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member


def group(*values: float, task: str = "t", role: str = "a", tokens: int = 1) -> Group:
    """A role's episodes of a task, each one sample of so many tokens."""
    members = tuple(Member((_sample(role, number, tokens),), (value,)) for number, value in enumerate(values))
    return Group(Key(task, 0, "*", role), "task", members)


def _sample(role: str, number: int, tokens: int) -> Sample:
    return Sample(
        role, f"p{role}", 0, (1, 2), (5, *[number] * (tokens - 1)), (-1.0,) * tokens, "stop", str(number), number
    )


def replies(*told: tuple[int, str, float, int]) -> Group:
    """A team's replies of a task: the episode of each, its role, its return and its tokens."""
    members = tuple(
        Member((_sample(role, number, tokens),), (value,), episode=episode)
        for number, (episode, role, value, tokens) in enumerate(told)
    )
    return Group(Key("t", 0, "*", "team"), "task", members)
