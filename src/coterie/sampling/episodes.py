"""Whole episodes: every task is played several times, and episodes of one task are compared.

Prompts differ between the members, so the group's scope is "task": the caller says so by
using this sampler. It is also how a team is evaluated: one episode a task, nothing compared.
"""

from __future__ import annotations

from coterie.environment import Task
from coterie.episode import Sample
from coterie.errors import Unavailable
from coterie.group import Collected, Group, Key, Member
from coterie.play import Play


async def episodes(play: Play, task: Task, *, num_generations: int, team_weight: float) -> Collected:
    """One group of `num_generations` episodes of a task, each with one return for all its samples.

    The return is team_weight x (team rewards) + (all local rewards of every role).
    """
    played = await play.together(*(_episode(play, task, episode, team_weight) for episode in range(num_generations)))
    kept = [outcome for outcome in played if not isinstance(outcome, Unavailable)]
    members = tuple(member for _, member in kept if member is not None)
    logs = tuple(log for log, _ in kept)
    if not kept:
        raise Unavailable("task", f"no episode of task {task.id} could be played")
    if len(members) < 2:
        play.budget.dropped["lone"] += sum(len(member.samples) for member in members)
        return Collected((), logs)
    return Collected((Group(Key(task.id, 0, "*", "team"), "task", members),), logs)


async def _episode(play: Play, task: Task, episode: int, team_weight: float):
    cursor = play.start(task, episode)
    drawn: list[tuple[int, Sample]] = await play.run(cursor)
    parts = {name: (team_weight if name == "team" else 1.0) * total for name, total in cursor.log.rewards().items()}
    samples = tuple(sample for _, sample in drawn)
    return cursor.log, Member(samples, (sum(parts.values()),), parts) if samples else None
