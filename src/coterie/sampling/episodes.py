"""Whole episodes: every task is played several times, and episodes of one task are compared.

Prompts differ between the members, so the group's scope is "task": the caller says so by
using this sampler. It is also how a team is evaluated: one episode a task, nothing compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from coterie.errors import Unavailable
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play

By = Literal["team", "role"]
Count = Literal["episode", "reply"]
TEAM = "team"
"""How the whole team is named, in keys and in rewards."""


async def episodes(
    play: Play, task: Task, *, num_generations: int, team_weight: float, by: By = "team", count: Count = "episode"
) -> Collected:
    """`num_generations` episodes of a task, each with one return for all its samples.

    The return is team_weight x (team rewards) + (all local rewards of every role).

    Args: by: one group of everybody's samples, or one for each role, which is compared with itself in the
        other episodes. count: in a role's group an episode is a member once, or once for each of its replies.
    """
    played = await play.together(*(_episode(play, task, episode, team_weight) for episode in range(num_generations)))
    kept = [outcome for outcome in played if not isinstance(outcome, Unavailable)]
    if not kept:
        raise Unavailable("task", f"no episode of task {task.id} could be played")
    members = [member for _, member in kept if member is not None]
    lots = {TEAM: members} if by == "team" else _by_role(members, count)
    groups: list[Group] = []
    for name, lot in sorted(lots.items()):
        if len(lot) < 2:
            play.budget.dropped["lone"] += sum(len(member.samples) for member in lot)
        else:
            groups.append(Group(Key(task.id, 0, "*", name), "task", tuple(lot)))
    return Collected(tuple(groups), tuple(log for log, _ in kept))


def _by_role(members: Sequence[Member], count: Count) -> dict[str, list[Member]]:
    """Each role's members: its samples of an episode together, or each alone, with the episode's return."""
    lots: dict[str, list[Member]] = {}
    for member in members:
        for role in {sample.role: None for sample in member.samples}:
            mine = tuple(sample for sample in member.samples if sample.role == role)
            parts = [mine] if count == "episode" else [(sample,) for sample in mine]
            lots.setdefault(role, []).extend(replace(member, samples=part) for part in parts)
    return lots


async def _episode(play: Play, task: Task, episode: int, team_weight: float):
    cursor = play.start(task, episode)
    drawn = await play.run(cursor)
    parts = {name: (team_weight if name == TEAM else 1.0) * total for name, total in cursor.log.rewards().items()}
    samples = tuple(sample for _, sample in drawn)
    return cursor.log, Member(samples, (sum(parts.values()),), parts) if samples else None
