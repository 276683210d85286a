"""Whole episodes: every task is played several times, and episodes of one task are compared.

Prompts differ between the members, so the scope of the group is "task"; an algorithm requests this by using
this sampler. Evaluation uses it too, with one episode per task and no comparison.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from coterie.errors import Unavailable
from coterie.kernel.environment import Task
from coterie.kernel.episode import Asked, Event, Log, Rewarded
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Drawn, Play

By = Literal["team", "role"]
Count = Literal["episode", "reply"]
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

    Args:
        by: one group of everybody's samples, or one for each role, which is compared with itself in the other
            episodes.
        count: in a role's group an episode is a member once, or once for each of its replies.
        own: of local rewards a role's return has its own alone.
        lone: keep groups of one, for a method whose baseline comes from elsewhere.
        step_weight: weight of the groups of replies to equal prompts, within and between the episodes. Their returns
            are the rewards that followed, discounted by `discount` per decision. 0: there are no such groups.
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


def _member(log: Log, drawn: Sequence[Drawn], team_weight: float) -> Member:
    parts = {name: (team_weight if name == TEAM else 1.0) * total for name, total in log.rewards().items()}
    return Member(tuple(decision.sample for decision in drawn), **_earned(parts))


async def _episode(play: Play, task: Task, episode: int) -> tuple[Log, Sequence[Drawn]]:
    cursor = play.start(task, episode)
    drawn = await play.run(cursor)
    learning = set(play.learning(decision.speaker for decision in drawn))
    return cursor.log, [decision for decision in drawn if decision.speaker in learning]


def _steps(
    task: Task, played: Sequence[tuple[Log, Sequence[Drawn]]], team_weight: float, discount: float, weight: float
) -> list[Group]:
    """Groups of two and more samples of a role that answer the same prompt, wherever in the task's episodes."""
    lots: dict[tuple[str, tuple[int, ...]], list[Member]] = {}
    for log, drawn in played:
        for role in {decision.sample.role: None for decision in drawn}:
            mine = [decision for decision in drawn if decision.sample.role == role]
            after = to_go(
                log.events, [(decision.point, decision.speaker) for decision in mine], role, team_weight, discount
            )
            for decision, value in zip(mine, after, strict=True):
                lots.setdefault((role, decision.sample.prompt_ids), []).append(Member((decision.sample,), (value,)))
    return [
        Group(Key(task.id, 0, f"state {number}", role), "prompt", tuple(lot), weight=weight)
        for number, ((role, _), lot) in enumerate(lots.items())
        if len(lot) > 1
    ]


def to_go(
    events: Sequence[Event], decisions: Sequence[tuple[int, str]], role: str, team_weight: float, discount: float
) -> list[float]:
    """What a role earned from each of its decisions on: what it earned, and discount x (what its next point came to).

    What a decision earned is team_weight x (team rewards) + (its own local rewards), given before the role's next
    point; where it said several things at once, a point came to its team rewards and the local ones of all of them.

    Args:
        decisions: the point and speaker of each, in order.
    """
    points = sorted({point for point, _ in decisions})
    team, local = [0.0] * len(points), dict.fromkeys(decisions, 0.0)
    asked = -1
    for event in events:
        if isinstance(event, Asked):
            asked += 1
        elif isinstance(event, Rewarded) and event.role is None:
            if (at := bisect_right(points, asked) - 1) >= 0:
                team[at] += team_weight * event.value
        elif isinstance(event, Rewarded) and (decision := (event.point or 0, event.role or "")) in local:
            local[decision] += event.value
    later = 0.0
    after: dict[int, float] = {}
    for at, point in reversed(list(enumerate(points))):
        after[point] = team[at] + discount * later
        later = after[point] + sum(value for (where, _), value in local.items() if where == point)
    return [local[point, speaker] + after[point] for point, speaker in decisions]
