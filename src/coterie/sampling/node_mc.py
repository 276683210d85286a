"""Node-wise Monte Carlo: one base episode, with alternative replies at chosen points that are played to the end.

    base      s_1 a_1 ... s_t a_t ... s_T a_T                     returns R
    node t    s_1 a_1 ... s_t a'   ... by the team as it is       A alternatives, n continuations each

A group is a node: the replies of one role to one prompt, including the base's own reply. The other roles'
replies at the same point stay those of the base. Equal alternatives are valued once and share their
continuations: they train the same logits, so another value of one of them is worth less than a value of a different
reply. A continuation only values its alternative; its replies are not trained. Every continuation of a node
has its own randomness, so returns differ only by chance if the reply does not matter. Every branch has its own name
and seeds. If not all decisions are nodes, a group is weighted by the number of decisions that it stands for
(Horvitz and Thompson). Otherwise a role that speaks T times would count T times less per turn, because of a length
that its own replies caused.

JoyAgents-R1 (arXiv:2506.19846) samples "alternatives per node of one initial trajectory"; how many, who
continues and what chance they share is not published: A, n, the current team, and none are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from coterie.errors import ExternalEffect, Unavailable
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Task
from coterie.kernel.episode import Event, Point, Sample, Value, value
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply, role_of
from coterie.seeds import seed_of

Nodes = Literal["all", "uniform", "per_agent"]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Settings of the sampling of a task.

    bases: base episodes. nodes: which decisions of a base are nodes; num_nodes: how many, of the episode
    ("uniform") or of each role ("per_agent"). num_generations: alternatives, with the base's own if
    `reuse_base`. continuations: of each alternative; the base's own episode is one of them.
    """

    bases: int
    nodes: Nodes
    num_nodes: int
    num_generations: int
    continuations: int
    reuse_base: bool
    team_weight: float


@dataclass(frozen=True, slots=True)
class _Decision:
    """One reply of the base episode: its point and speaker, the sample, and the replies of everybody at that point.

    weight: how many decisions it stands for, if not all are nodes.
    """

    point: Point
    speaker: str
    sample: Sample
    replies: dict[str, Reply]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class _Tail:
    """The continuation of a reply: its value, and True if nothing was decided after the reply."""

    earned: Value
    last: bool


async def node_mc(play: Play, task: Task, plan: NodePlan) -> Collected:
    """Returns the groups of all nodes of all base episodes, and the bases' logs.

    Continuations lost to faults are missing from their alternative; an alternative without any is
    missing from its group; a group of one is dropped and counted.
    """
    played = await play.together(*(_base(play, task, number, plan) for number in range(plan.bases)))
    kept = [outcome for outcome in played if not isinstance(outcome, Unavailable)]
    if not kept:
        raise Unavailable("task", f"no base episode of task {task.id} could be played")
    groups = tuple(group for outcome in kept for group in outcome.groups)
    return Collected(groups, tuple(log for outcome in kept for log in outcome.logs))


async def _base(play: Play, task: Task, number: int, plan: NodePlan) -> Collected:
    base = play.start(task, number)
    decisions: list[_Decision] = []
    while (point := await base.advance()) is not None:
        drawn = await play.ask(base, point)
        replies = {role: sample.reply() for role, (sample,) in drawn.items()}
        if point.after_external:
            play.budget.dropped["after_external"] += len(drawn)
        else:
            decisions += [
                _Decision(point, speaker, drawn[speaker][0], replies)
                for speaker in play.learning(drawn)
                if not drawn[speaker][0].silent
            ]
        base.answer(replies)
    if plan.reuse_base and base.acted:  # dropped, as an alternative would be
        play.budget.dropped["external_effect"] += len(decisions)
        decisions = []
    nodes = chosen(decisions, plan, Random(seed_of("nodes", base.seed)))
    groups_of_nodes = await play.together(*(_node(play, base, node, plan) for node in nodes))
    groups = tuple(group for its in groups_of_nodes if not isinstance(its, Unavailable) for group in its)
    return Collected(groups, (base.log,))


def chosen(decisions: Sequence[_Decision], plan: NodePlan, rng: Random) -> list[_Decision]:
    """Returns the decisions that are nodes, in their order; drawn without a look at what they came to."""
    if plan.nodes == "all":
        return list(decisions)
    lots: dict[str, list[int]] = {}
    for at, decision in enumerate(decisions):
        lots.setdefault(role_of(decision.speaker) if plan.nodes == "per_agent" else "", []).append(at)
    weights: dict[int, float] = {}
    for _, lot in sorted(lots.items()):
        drawn = rng.sample(lot, min(plan.num_nodes, len(lot)))
        weights |= dict.fromkeys(drawn, len(lot) / len(drawn))
    return [replace(decisions[at], weight=weight) for at, weight in sorted(weights.items())]


async def _node(play: Play, base: Cursor, node: _Decision, plan: NodePlan) -> list[Group]:
    """Returns the group of one node; none when one would change the world, or faults left fewer than two."""
    index = node.point.index
    branch = f"{index}.{node.speaker}"
    fork = base.fork(index, branch)
    point = await fork.advance()
    assert point is not None
    fresh = plan.num_generations - plan.reuse_base
    drawn = await play.ask(fork, point, fresh, roles=(node.speaker,))
    samples = [*[node.sample] * plan.reuse_base, *drawn[node.speaker]]
    said = [sample.completion_ids for sample in samples]
    first = [said.index(ids) for ids in said]
    tried = sorted(set(first))
    plan = plan if len(tried) > 1 else replace(plan, continuations=1)
    tails = await play.together(
        *(_alternative(play, base, node, samples[at], f"{branch}.{at}", at, plan) for at in tried)
    )
    if any(isinstance(finished, ExternalEffect) for finished in tails):
        return []
    members: list[Member] = []
    last = True
    for sample, at in zip(samples, first, strict=True):
        finished = tails[tried.index(at)]
        if not isinstance(finished, Unavailable):
            members.append(_member(sample, finished))
            last &= all(tail.last for tail in finished)
    if len(members) < 2:
        play.budget.dropped["lone"] += len(members)
        return []
    key = Key(*play.key(base, node.point, node.speaker))
    committed = 0 if plan.reuse_base else None
    return [
        Group(
            key, "prompt", tuple(members), weight=node.weight, committed=committed, last=last, pooled=True, point=index
        )
    ]


async def _alternative(
    play: Play, base: Cursor, node: _Decision, sample: Sample, branch: str, number: int, plan: NodePlan
) -> list[_Tail]:
    """Plays an alternative's continuations. Raises: Unavailable: it would change the world, or cannot be played."""
    index = node.point.index
    own = plan.reuse_base and number == 0
    answer = {**node.replies, node.speaker: sample.reply()}
    played = await play.together(
        *(
            _continuation(play, base.fork(index, f"{branch}.{at}", trial=True), node, answer, at, number, plan)
            for at in range(1 if own else 0, plan.continuations)
        )
    )
    for outcome in played:
        if isinstance(outcome, ExternalEffect):
            raise outcome
    tails = [outcome for outcome in played if not isinstance(outcome, Unavailable)]
    if own:
        tails.insert(0, _tail(base.since(index), index, node.speaker, plan))
    if not tails:
        raise Unavailable("alternative", f"no continuation of {branch} could be played")
    return tails


async def _continuation(
    play: Play, fork: Cursor, node: _Decision, answer: dict[str, Reply], at: int, number: int, plan: NodePlan
) -> _Tail:
    await fork.advance()
    fork.answer(answer, chance=number * plan.continuations + at)
    await play.run(fork)
    return _tail(fork.since(node.point.index), node.point.index, node.speaker, plan)


def _tail(events: Sequence[Event], index: int, speaker: str, plan: NodePlan) -> _Tail:
    asked = sum(event.kind == "asked" for event in events)
    return _Tail(value(events, index, speaker, "episode", plan.team_weight, first=index), asked == 1)


def _member(sample: Sample, tails: Sequence[_Tail]) -> Member:
    names = sorted({name for tail in tails for name in tail.earned.parts})
    parts = {name: sum(tail.earned.parts.get(name, 0.0) for tail in tails) / len(tails) for name in names}
    return Member((sample,), tuple(tail.earned.total for tail in tails), parts)
