"""Whole episodes: every task is played several times, and episodes of one task are compared.

Prompts differ between the members, so the group's scope is "task": the caller says so by
using this sampler. It is also how a team is evaluated: one episode a task, nothing compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from coterie.errors import Unavailable
from coterie.kernel.environment import Task
from coterie.kernel.episode import Asked, Event, Log, Rewarded, Sample
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play

By = Literal["team", "role"]
Count = Literal["episode", "reply"]
Drawn = Sequence[tuple[int, Sample]]
"""An episode's samples, with the numbers of their points."""
TEAM = "team"
"""How the whole team is named, in keys and in rewards."""


async def episodes(
    play: Play,
    task: Task,
    *,
    num_generations: int,
    team_weight: float,
    by: By = "team",
    count: Count = "episode",
    own: bool = False,
    lone: bool = False,
    step_weight: float = 0.0,
    discount: float = 1.0,
) -> Collected:
    """`num_generations` episodes of a task, each with one return for all its samples.

    The return is team_weight x (team rewards) + (all local rewards of every role).

    Args: by: one group of everybody's samples, or one for each role, which is compared with itself in the
        other episodes. count: in a role's group an episode is a member once, or once for each of its replies.
        own: of local rewards a role's return has its own alone. lone: keep groups of one, for a method whose
        baseline comes from elsewhere. step_weight: of groups of equal prompts within and between the episodes,
        whose returns are what came after, a decision later times `discount`; 0: there are none.
    """
    played = await play.together(*(_episode(play, task, episode) for episode in range(num_generations)))
    kept = [outcome for outcome in played if not isinstance(outcome, Unavailable)]
    if not kept:
        raise Unavailable("task", f"no episode of task {task.id} could be played")
    logs = tuple(log for log, _ in kept)
    members = [_member(log, drawn, team_weight) for log, drawn in kept if drawn]
    lots = _by_role(members, count, own=own) if by == "role" else {TEAM: members}
    groups: list[Group] = []
    for name, lot in sorted(lots.items()):
        if len(lot) < (1 if lone else 2):
            play.budget.dropped["lone"] += sum(len(member.samples) for member in lot)
        else:
            groups.append(Group(Key(task.id, 0, "*", name), "task", tuple(lot)))
    if step_weight:
        groups += _steps(task, kept, team_weight, discount, step_weight)
    return Collected(tuple(groups), logs)


def _by_role(members: Sequence[Member], count: Count, *, own: bool) -> dict[str, list[Member]]:
    """Each role's members: its samples of an episode together, or each alone, with the episode's return."""
    lots: dict[str, list[Member]] = {}
    for member in members:
        for role in {sample.role: None for sample in member.samples}:
            mine = tuple(sample for sample in member.samples if sample.role == role)
            parts = [mine] if count == "episode" else [(sample,) for sample in mine]
            its = _earned({name: part for name, part in member.parts.items() if name in (TEAM, role) or not own})
            lots.setdefault(role, []).extend(replace(member, samples=part, **its) for part in parts)
    return lots


def _earned(parts: Mapping[str, float]) -> dict[str, Any]:
    return {"returns": (sum(parts.values()),), "parts": dict(parts)}


def _member(log: Log, drawn: Drawn, team_weight: float) -> Member:
    parts = {name: (team_weight if name == TEAM else 1.0) * total for name, total in log.rewards().items()}
    return Member(tuple(sample for _, sample in drawn), **_earned(parts))


async def _episode(play: Play, task: Task, episode: int) -> tuple[Log, Drawn]:
    cursor = play.start(task, episode)
    drawn = await play.run(cursor)
    return cursor.log, drawn


def _steps(
    task: Task, played: Sequence[tuple[Log, Drawn]], team_weight: float, discount: float, weight: float
) -> list[Group]:
    """Groups of two and more samples of a role that answer the same prompt, wherever in the task's episodes."""
    lots: dict[tuple[str, tuple[int, ...]], list[Member]] = {}
    for log, drawn in played:
        for role in {sample.role: None for _, sample in drawn}:
            mine = [(point, sample) for point, sample in drawn if sample.role == role]
            after = to_go(log.events, [point for point, _ in mine], role, team_weight, discount)
            for (_, sample), value in zip(mine, after, strict=True):
                lots.setdefault((role, sample.prompt_ids), []).append(Member((sample,), (value,)))
    return [
        Group(Key(task.id, 0, f"state {number}", role), "prompt", tuple(lot), weight=weight)
        for number, ((role, _), lot) in enumerate(lots.items())
        if len(lot) > 1
    ]


def to_go(
    events: Sequence[Event], points: Sequence[int], role: str, team_weight: float, discount: float
) -> list[float]:
    """What a role earned from each of its decisions on: sum of discount^k x (what its k-th next decision earned).

    What a decision earned is team_weight x (team rewards) + (its own local rewards), given before its next one.

    Args: points: its decisions, in order.
    """
    earned = [0.0] * len(points)
    asked = -1
    for event in events:
        if isinstance(event, Asked):
            asked += 1
        elif isinstance(event, Rewarded) and event.role in (None, role):
            at = bisect_right(points, asked if event.point is None else event.point) - 1
            if at >= 0:
                earned[at] += (team_weight if event.role is None else 1.0) * event.value
    for at in range(len(points) - 2, -1, -1):
        earned[at] += discount * earned[at + 1]
    return earned
