"""Tree sampling: along one main episode, each decision point draws K replies, values each and commits one.

A continuation that values a candidate is discarded, and the next group is drawn anew. Keeping the winner's
continuation would favour candidates with a lucky continuation. With `horizon = "point"` nothing is sampled
in a continuation. Then one fork values all equal answers, and the fork of the committed answer is reused as
the first fork of the next point. This saves replays, which are most of a tree's cost besides the engine. The
paper (arXiv:2510.11062, Alg. 1) leaves two things open, which are settings here: how long a candidate's
rewards count (`horizon`), and how simultaneous replies are combined (`joint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from coterie.errors import EnvError, ExternalEffect, Unavailable
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Task
from coterie.kernel.episode import Horizon, Point, Sample, Value, check_seen, value
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply
from coterie.seeds import seed_of

Commit = Literal["greedy", "random"]
Joint = Literal["aligned", "per_role"]


@dataclass(frozen=True, slots=True)
class _Branch:
    """A joint answer that is tried. draws: which of its draws each role answers with."""

    draws: dict[str, int]
    credits: tuple[str, ...]
    """Roles whose candidate this branch values."""


async def tree(
    play: Play,
    task: Task,
    *,
    num_generations: int,
    horizon: Horizon,
    team_weight: float,
    commit: Commit,
    joint: Joint = "aligned",
) -> Collected:
    """Returns groups of `num_generations` replies at every point of one episode, and its committed log.

    Args:
        horizon, team_weight: how a candidate is valued, see `episode.value`.
        commit: the main episode continues with the best valid candidate ("greedy") or with a random one.
        joint: how simultaneous replies are combined. aligned: branch k answers with the k-th draw of every role;
            per_role: the candidates of a role are tried together with draw 0 of the others.

    Returns:
        one group a point and role; candidates lost to faults are missing from their group.
    """
    spine = play.start(task)
    groups: list[Group] = []
    spare: list[Cursor] = []
    same: list[Cursor] = []
    """The fork that was answered like the main episode at the previous point, if there is one."""
    while (point := await _advanced(spine, same)) is not None:
        carried, spare, same = spare, [], []
        learning = play.learning(point.roles)
        draws = await play.ask(spine, point, num_generations if learning and not point.after_external else 1)
        speaking = [role for role in learning if not draws[role][0].silent]
        if point.after_external:
            play.budget.dropped["after_external"] += len(speaking)
        if point.after_external or not speaking:
            spine.answer({role: samples[0].reply() for role, samples in draws.items()})
            continue
        branches = _branches(point.roles, num_generations, joint)
        replies = {role: [sample.reply() for sample in samples] for role, samples in draws.items()}
        answers = [{role: replies[role][draw] for role, draw in branch.draws.items()} for branch in branches]
        alike = [answers.index(answer) if horizon == "point" else at for at, answer in enumerate(answers)]
        tried = sorted(set(alike))
        fresh = (spine.fork(branch=f"{point.index}.{number}", trial=True) for number in tried[len(carried) :])
        forks = [*carried, *fresh]
        outcomes = await play.together(
            *(
                _try(play, fork, point, answers[number], horizon, team_weight)
                for fork, number in zip(forks, tried, strict=True)
            )
        )
        for number, outcome in zip(tried, outcomes, strict=True):
            if isinstance(outcome, Unavailable):
                play.budget.dropped[outcome.stage] += (
                    alike.count(number) - 1
                )  # the decisions that this one fork stood for
        values = [outcomes[tried.index(number)] for number in alike]
        valid = [index for index, outcome in enumerate(values) if not isinstance(outcome, Unavailable)]
        if any(isinstance(outcome, ExternalEffect) for outcome in values):
            spine.answer({role: samples[0].reply() for role, samples in draws.items()})
            continue
        if not valid:
            raise Unavailable("point", f"no candidate at {point.path} could be valued")
        rng = Random(seed_of("commit", *play.key(spine, point, "")))
        scores = {index: _score(values[index]) for index in valid}
        best = max(scores.values()) if commit == "greedy" else None
        committed = rng.choice([index for index in valid if best is None or scores[index] == best])
        for role in speaking:
            groups += _group(play, spine, point, role, draws[role], branches, values, committed)
        spine.answer(answers[committed])
        same = [forks[tried.index(alike[committed])]]
        spare = same if horizon == "point" else []
    check_seen(spine.events, horizon)
    return Collected(tuple(groups), (spine.log,))


async def _advanced(spine: Cursor, forks: Sequence[Cursor]) -> Point | None:
    """Returns the next point of the main episode. Raises: EnvError: a fork with the same answers has other events."""
    last = spine.asked
    point = await spine.advance()
    told = spine.since(last) if forks else ()
    if any(fork.since(last)[: len(told)] != told for fork in forks):
        raise EnvError(
            f"play of task {spine.task.id} is not deterministic: a branch and the story went apart after the same "
            "answers; what passes from turn to turn must be in scene.state, where there is one, and what depends on a "
            "clock or on other chance takes a method that compares whole episodes, such as algorithm.name = 'drmas'"
        )
    return point


def _branches(roles: Sequence[str], draws: int, joint: Joint) -> list[_Branch]:
    if joint == "aligned" or len(roles) == 1:
        return [_Branch(dict.fromkeys(roles, draw), tuple(roles)) for draw in range(draws)]
    first = _Branch(dict.fromkeys(roles, 0), tuple(roles))
    return [first] + [
        _Branch(dict.fromkeys(roles, 0) | {role: draw}, (role,)) for role in roles for draw in range(1, draws)
    ]


async def _try(
    play: Play,
    fork: Cursor,
    point: Point,
    answer: dict[str, Reply],
    horizon: Horizon,
    team_weight: float,
) -> dict[str, Value]:
    """Returns the value of one joint answer for every role that speaks, on a fork that is then thrown away."""
    await fork.advance()
    fork.answer(answer)

    def closed(other: Point) -> bool:
        return horizon == "point" or (horizon == "turn" and other.turn != point.turn)

    await play.run(fork, until=closed)
    events, at = fork.since(point.index), point.index
    return {role: value(events, at, role, horizon, team_weight, first=at) for role in point.roles}


def _score(values: dict[str, Value] | Unavailable) -> float:
    assert not isinstance(values, Unavailable)
    return sum(value.total for value in values.values())


def _group(
    play: Play,
    spine: Cursor,
    point: Point,
    role: str,
    draws: tuple[Sample, ...],
    branches: Sequence[_Branch],
    values: Sequence[dict[str, Value] | Unavailable],
    committed: int,
) -> list[Group]:
    """Returns the role's group at this point; none when faults left fewer than two candidates."""
    members: list[Member] = []
    chosen: int | None = None
    for branch, outcome in zip(branches, values, strict=True):
        if role not in branch.credits or isinstance(outcome, Unavailable):
            continue
        if branch.draws[role] == branches[committed].draws[role]:
            chosen = len(members)
        earned = outcome[role]
        members.append(Member((draws[branch.draws[role]],), (earned.total,), earned.parts))
    if len(members) < 2:
        play.budget.dropped["lone"] += len(members)
        return []
    return [Group(Key(*play.key(spine, point, role)), "prompt", tuple(members), committed=chosen, point=point.index)]
