"""Whole episodes: every task is played several times, and episodes of one task are compared.

Prompts differ between the members, so the scope of the group is "task"; an algorithm requests this by using
this sampler. Evaluation uses it too, with one episode per task and no comparison.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from coterie.errors import Unavailable
from coterie.kernel.environment import Task
from coterie.kernel.episode import Asked, Event, Log, Rewarded, TurnBegan
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Drawn, Play

By = Literal["team", "role", "turn", "role_turn"]
Count = Literal["episode", "reply"]
TEAM = "team"
"""Name of the whole team, in keys and in rewards."""


@dataclass(frozen=True, slots=True)
class _Played:
    """An episode of a task: its number, its log, and the samples that somebody learns from."""

    number: int
    log: Log
    drawn: Sequence[Drawn]


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
    within: Sequence[str] = (),
    to_come: float | None = None,
    step_weight: float = 0.0,
    discount: float = 1.0,
    history: int = 0,
) -> Collected:
    """Plays `num_generations` episodes of a task, and groups their samples.

    Unless an argument says otherwise, all samples of an episode have one return: team_weight x (team rewards) + (all
    local rewards of every role).

    Args:
        by: one group of everybody's samples; or one for each role, for each turn, or for each role and turn, which are
            compared with themselves in the other episodes.
        count: an episode is a member of its group once, or once for each of its replies.
        own: of local rewards a role's return has its own alone.
        lone: keep groups of one, for a method whose baseline comes from elsewhere.
        within: roles that are compared within an episode instead: a group for each prompt, and the return of a reply is
            its own local rewards.
        to_come: a reply's return is the rewards that followed it, discounted by this per decision of its role; of local
            rewards its own alone. None: it is the episode's. It needs count "reply".
        step_weight: weight of the groups of replies to equal prompts, within and between the episodes. Their returns
            are the rewards that followed, discounted by `discount` per decision. 0: there are no such groups.
        history: such groups once more for every number of earlier prompts of whoever speaks, up to so many, that are
            equal too. The path of their keys is `state N+K`, with K earlier prompts.
    """
    outcomes = await play.together(*(_episode(play, task, episode) for episode in range(num_generations)))
    played = [outcome for outcome in outcomes if not isinstance(outcome, Unavailable)]
    if not played:
        raise Unavailable("task", f"no episode of task {task.id} could be played")
    lots: dict[tuple[str, str], list[Member]] = {}
    for one in played:
        for part in _parts(one, by):
            if by == "team" or part.role not in within:
                members = _members(one, part, team_weight, count, own, to_come)
                lots.setdefault((part.path, part.role), []).extend(members)
    groups: list[Group] = []
    for (path, role), lot in sorted(lots.items()):
        if len(lot) < (1 if lone else 2):
            play.budget.dropped["lone"] += sum(len(member.samples) for member in lot)
        else:
            groups.append(Group(Key(task.id, 0, path, role), "task", tuple(lot)))
    if within:
        groups += _attempts(play, task, played, within)
    if step_weight:
        groups += _states(task, played, team_weight, discount, step_weight, history)
    return Collected(tuple(groups), tuple(one.log for one in played))


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an episode that is compared with those of others: the path and role of its group, and its replies."""

    path: str
    role: str
    drawn: Sequence[Drawn]


def _parts(played: _Played, by: By) -> Iterator[_Part]:
    """Yields the parts of an episode: whole, by role, by turn, or by both; of samples that somebody learns from."""
    roles = _of_roles(played) if by in ("role", "role_turn") else {TEAM: list(played.drawn)}
    turns = turns_of(played.log.events) if by in ("turn", "role_turn") else ()
    for role, mine in roles.items():
        lots: dict[str, list[Drawn]] = {}
        for one in mine:
            lots.setdefault(f"turn {turns[one.point]}" if turns else "*", []).append(one)
        yield from (_Part(path, role, lot) for path, lot in lots.items())


def turns_of(events: Sequence[Event]) -> list[int]:
    """Returns the turn of each decision point of an episode; -1 before the first turn mark."""
    turn, turns = -1, list[int]()
    for event in events:
        if isinstance(event, TurnBegan):
            turn = event.number
        elif isinstance(event, Asked):
            turns.append(turn)
    return turns


def _members(
    played: _Played, part: _Part, team_weight: float, count: Count, own: bool, to_come: float | None
) -> Iterator[Member]:
    """Yields the members of a part's group: the part or its replies, with the episode's return or what was to come."""
    totals = played.log.rewards()
    parts = {name: (team_weight if name == TEAM else 1.0) * total for name, total in totals.items()}
    its = {key: value for key, value in parts.items() if part.role == TEAM or key in (TEAM, part.role) or not own}
    whole = Member(tuple(one.sample for one in part.drawn), (sum(its.values()),), its, played.number)
    if count == "episode":
        yield whole
    elif to_come is None:
        yield from (replace(whole, samples=(one.sample,)) for one in part.drawn)
    else:
        places = [(one.point, one.speaker) for one in part.drawn]
        after = to_go(played.log.events, places, part.role, team_weight, to_come)
        for one, value in zip(part.drawn, after, strict=True):
            yield Member((one.sample,), (value,), episode=played.number)


def _of_roles(played: _Played) -> dict[str, list[Drawn]]:
    """Returns the samples of each role, in the order in which the roles spoke first."""
    lots: dict[str, list[Drawn]] = {}
    for one in played.drawn:
        lots.setdefault(one.sample.role, []).append(one)
    return lots


async def _episode(play: Play, task: Task, episode: int) -> _Played:
    cursor = play.start(task, episode)
    drawn = await play.run(cursor)
    learning = set(play.learning(decision.speaker for decision in drawn))
    return _Played(episode, cursor.log, [decision for decision in drawn if decision.speaker in learning])


def _attempts(play: Play, task: Task, played: Sequence[_Played], roles: Sequence[str]) -> list[Group]:
    """Returns groups of two and more replies of a role to one prompt of an episode, each with its own local rewards."""
    groups: list[Group] = []
    for one in played:
        earned: dict[tuple[int, str], float] = {}
        for event in one.log.events:
            if isinstance(event, Rewarded) and event.role:
                place = event.point or 0, event.role
                earned[place] = earned.get(place, 0.0) + event.value
        lots: dict[tuple[str, tuple[int, ...]], list[Member]] = {}
        for said in one.drawn:
            if said.sample.role in roles:
                value = earned.get((said.point, said.speaker), 0.0)
                member = Member((said.sample,), (value,), episode=one.number)
                lots.setdefault((said.sample.role, said.sample.prompt_ids), []).append(member)
        for number, ((role, _), lot) in enumerate(lots.items()):
            if len(lot) > 1:
                groups.append(Group(Key(task.id, 0, f"attempts {one.number}.{number}", role), "prompt", tuple(lot)))
            else:
                play.budget.dropped["lone"] += 1
    return groups


def _states(
    task: Task, played: Sequence[_Played], team_weight: float, discount: float, weight: float, history: int
) -> list[Group]:
    """Returns groups of two and more samples of a role that answer the same prompt, wherever in the task's episodes.

    history: and groups of those of which so many earlier prompts of the role are equal too, for each number up to it.
    """
    lots: dict[tuple[str, tuple[tuple[int, ...], ...]], list[Member]] = {}
    for one in played:
        for role, mine in _of_roles(one).items():
            places = [(decision.point, decision.speaker) for decision in mine]
            after = to_go(one.log.events, places, role, team_weight, discount)
            for decision, value in zip(mine, after, strict=True):
                member = Member((decision.sample,), (value,), episode=one.number)
                before = [
                    other.sample.prompt_ids
                    for other in mine
                    if other.point < decision.point and other.speaker == decision.speaker
                ]
                for earlier in range(min(len(before), history) + 1):
                    seen = (*before[len(before) - earlier :], decision.sample.prompt_ids)
                    lots.setdefault((role, seen), []).append(member)
    return [
        Group(Key(task.id, 0, f"state {number}{_with(seen)}", role), "prompt", tuple(lot), weight=weight)
        for number, ((role, seen), lot) in enumerate(lots.items())
        if len(lot) > 1
    ]


def _with(seen: Sequence[tuple[int, ...]]) -> str:
    return f"+{len(seen) - 1}" if len(seen) > 1 else ""


def to_go(
    events: Sequence[Event], decisions: Sequence[tuple[int, str]], role: str, team_weight: float, discount: float
) -> list[float]:
    """Returns a role's rewards from each decision on: what it earned, and discount x (what its next point came to).

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
