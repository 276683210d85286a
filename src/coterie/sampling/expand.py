"""Expansion: every joint action of a decision point is continued, and judged by the return that follows.

At each point every role draws G replies to its one prompt. A joint action takes one reply of each
role: the k-th of all ("aligned", K = G of them), or every combination ("cross", K = G^n). All of
them earn the same for everybody, r = team_weight x (team rewards) + (every role's local rewards)
until the next point. What a joint action returns, R, depends on the expansion:

    all     each joint action is a node with its own groups: R = r + discount x mean R of its joint actions
    greedy  each is continued once by the current team, R = r + discount r' + discount^2 r'' + ...;
            the episode then continues, newly sampled, with the best: later prompts are better than in plain play

A group holds one role's G replies at one node. The return of a reply is the mean over the joint actions
that contain it. The weight of a group at depth t is discount^t divided by the number of nodes at this depth
if no branch ends early. So the sum over groups is the gradient of the discounted return (arXiv:2508.04652,
eq. 2, is an average over branches).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Literal

from coterie.errors import ConfigError, ExternalEffect, Unavailable
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Task
from coterie.kernel.episode import Asked, Point, Sample, Value, value
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply
from coterie.seeds import seed_of

JointActions = Literal["aligned", "cross"]
Expansion = Literal["all", "greedy"]


@dataclass(frozen=True, slots=True)
class ExpansionPlan:
    """Settings of the expansion of a task.

    max_nodes: with "all", more nodes are an error. max_joint_actions: with "cross", a node that would have more of them
    is aligned instead. greedy_baseline: the baseline of groups is the return of the greedy joint action.
    """

    num_generations: int
    joint: JointActions
    expansion: Expansion
    discount: float
    team_weight: float
    max_nodes: int
    max_joint_actions: int = 64
    greedy_baseline: bool = False


@dataclass(frozen=True, slots=True)
class _Played:
    """The result of a joint action. later: the part of its return after the next point; groups: of its subtree."""

    now: Value
    later: float
    groups: tuple[Group, ...] = ()

    @property
    def total(self) -> float:
        return self.now.total + self.later


async def expand(play: Play, task: Task, plan: ExpansionPlan) -> Collected:
    """Returns the groups of every node, and one whole episode: the first joint actions' ("all"), or the spine.

    Branches lost to faults are missing from their groups; a group left with one member is dropped and counted.
    """
    root = play.start(task)
    point = await root.advance()
    groups: tuple[Group, ...] = ()
    if point is not None:
        groups, _ = await _node(play, root, point, plan, 1.0)
    return Collected(groups, (root.log,) if root.log.outcome else ())


async def _node(
    play: Play, cursor: Cursor, point: Point, plan: ExpansionPlan, weight: float
) -> tuple[tuple[Group, ...], float]:
    """Returns the groups from a point on, and the mean return of its joint actions; the cursor plays on to the end."""
    if point.after_external:
        return await _unbranched(play, cursor, point, plan, weight)
    learning = play.learning(point.roles)
    draws = await play.ask(cursor, point, plan.num_generations if learning else 1)
    speaking = [role for role in learning if not draws[role][0].silent]
    joints = _joints(point.roles, plan if speaking else replace(plan, num_generations=1))
    if plan.expansion == "all" and _nodes(point.index, len(joints)) > plan.max_nodes:
        raise ConfigError(
            f"expansion = 'all' would make {_nodes(point.index, len(joints))} nodes of one task down to decision "
            f"{point.index + 1}, more than algorithm.max_nodes = {plan.max_nodes}; use expansion = 'greedy', fewer "
            "turns or fewer replies, or raise it"
        )
    answers = [{role: draws[role][draw].reply() for role, draw in joint.items()} for joint in joints]
    played, baseline = await _play_on(play, cursor, point, answers, plan, weight)
    compared = not (cursor.acted or any(isinstance(outcome, ExternalEffect) for outcome in played))
    returns = {at: outcome.total for at, outcome in enumerate(played) if not isinstance(outcome, Unavailable)}
    if not compared and plan.expansion == "all":  # the first is what the team did
        if isinstance(played[0], Unavailable):
            raise played[0]
        returns = {0: returns[0]}
    if compared and not returns:
        raise Unavailable("point", f"no joint action at {point.path} could be played on")
    committed = 0
    if plan.expansion == "greedy" and compared:
        best = [at for at, total in returns.items() if total == max(returns.values())]
        committed = Random(seed_of("commit", *play.key(cursor, point, ""))).choice(best)
    groups: list[Group] = []
    for role in speaking if compared else ():
        chosen = [joint[role] for joint in joints]
        members, at = _members(play, draws[role], chosen, played, committed)
        if members:
            key = Key(*play.key(cursor, point, role))
            groups.append(
                Group(key, "prompt", members, weight=weight, committed=at, baseline=baseline, point=point.index)
            )
    if plan.expansion == "greedy":
        cursor.answer(answers[committed])
        following = await cursor.advance()
        if following is not None:
            groups += (await _node(play, cursor, following, plan, weight * plan.discount))[0]
    for outcome in played:
        groups += [] if isinstance(outcome, Unavailable) else outcome.groups
    return tuple(groups), fmean(
        returns.values()
    ) if returns else 0.0  # a spine that has acted has no branching point above it


def _nodes(depth: int, joints: int) -> int:
    """Returns the number of nodes of a tree down to a depth where no branch has ended."""
    return sum(joints**at for at in range(depth + 1))


async def _play_on(
    play: Play, cursor: Cursor, point: Point, answers: Sequence[Mapping[str, Reply]], plan: ExpansionPlan, weight: float
) -> tuple[list[_Played | Unavailable], float | None]:
    """Plays every joint action on; returns the results, and the greedy one's return where groups are judged by it.

    Under "all" the cursor itself plays the first: its log is a whole episode.
    """
    first = 1 if plan.expansion == "all" else 0
    forks = [cursor] * first + [
        cursor.fork(branch=f"{point.index}.{number}", trial=True) for number in range(first, len(answers))
    ]
    share = weight / len(answers)
    branches = [_branch(play, fork, point, answer, plan, share) for fork, answer in zip(forks, answers, strict=True)]
    if plan.greedy_baseline:
        branches.append(_greedy(play, cursor.fork(branch=f"{point.index}.greedy", trial=True), point, plan))
    played = await play.together(*branches)
    if not plan.greedy_baseline:
        return played, None
    *rest, greedy = played
    if isinstance(greedy, ExternalEffect):
        return played, None
    if isinstance(greedy, Unavailable):
        raise Unavailable("point", f"the greedy joint action at {point.path} could not be played")
    return rest, greedy.total


def _joints(roles: Sequence[str], plan: ExpansionPlan) -> list[dict[str, int]]:
    """Returns the draw that each role plays, for every joint action.

    If the team of this point would make more than `max_joint_actions`, they are aligned. Replies can decide how large a
    team is, and no reply may end a run.
    """
    draws = range(plan.num_generations)
    if plan.joint == "aligned" or plan.num_generations ** len(roles) > plan.max_joint_actions:
        return [dict.fromkeys(roles, draw) for draw in draws]
    return [dict(zip(roles, chosen, strict=True)) for chosen in itertools.product(draws, repeat=len(roles))]


async def _branch(
    play: Play, cursor: Cursor, point: Point, answer: Mapping[str, Reply], plan: ExpansionPlan, weight: float
) -> _Played:
    """Plays a joint action and what follows it: a node ("all"), or one episode of the team as it is ("greedy")."""
    await cursor.advance()
    cursor.answer(answer)
    if plan.expansion == "greedy":
        await play.run(cursor)
        return _discounted(cursor, point, plan)
    following = await cursor.advance()
    now = value(cursor.since(point.index), point.index, None, "point", plan.team_weight, first=point.index)
    if following is None:
        return _Played(now, 0.0)
    groups, ahead = await _node(play, cursor, following, plan, weight * plan.discount)
    return _Played(now, plan.discount * ahead, groups)


async def _greedy(play: Play, cursor: Cursor, point: Point, plan: ExpansionPlan) -> _Played:
    """Plays the greedy joint action, and greedily after it."""
    await play.run(cursor, temperature=0.0)
    return _discounted(cursor, point, plan)


def _discounted(cursor: Cursor, point: Point, plan: ExpansionPlan) -> _Played:
    """Returns the discounted value of an episode from a point on."""
    events, start = cursor.since(point.index), point.index
    end = start + sum(isinstance(event, Asked) for event in events)
    now, *after = [value(events, at, None, "point", plan.team_weight, first=start) for at in range(start, end)]
    return _Played(now, sum(plan.discount ** (at + 1) * outcome.total for at, outcome in enumerate(after)))


async def _unbranched(
    play: Play, cursor: Cursor, point: Point, plan: ExpansionPlan, weight: float
) -> tuple[tuple[Group, ...], float]:
    """Plays a point after the world has changed: one joint action, no group."""
    draws = await play.ask(cursor, point)
    play.budget.dropped["after_external"] += sum(not samples[0].silent for samples in draws.values())
    answer = {role: samples[0].reply() for role, samples in draws.items()}
    outcome = await _branch(play, cursor, point, answer, plan, weight)
    return outcome.groups, outcome.total


def _members(
    play: Play,
    draws: Sequence[Sample],
    chosen: Sequence[int],
    played: Sequence[_Played | Unavailable],
    committed: int,
) -> tuple[tuple[Member, ...], int | None]:
    """Returns a role's members at a node and which of them is committed; none when faults left fewer than two.

    Args: chosen: which of the role's draws each joint action plays.
    """
    members: list[Member] = []
    place: int | None = None
    for draw, sample in enumerate(draws):
        pairs = zip(chosen, played, strict=True)
        mine = [outcome for choice, outcome in pairs if choice == draw and not isinstance(outcome, Unavailable)]
        if not mine:
            continue
        if chosen[committed] == draw:
            place = len(members)
        names = sorted({name for outcome in mine for name in outcome.now.parts})
        parts = {name: fmean(outcome.now.parts.get(name, 0.0) for outcome in mine) for name in names}
        parts["later"] = fmean(outcome.later for outcome in mine)
        members.append(Member((sample,), tuple(outcome.total for outcome in mine), parts))
    if len(members) < 2:
        play.budget.dropped["lone"] += len(members)
        return (), None
    return tuple(members), place
