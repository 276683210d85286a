"""Node-wise Monte Carlo: whose groups, which prefixes, how many calls; and that its gradient is the right one."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean, stdev
from typing import ClassVar

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.c3 import C3
from coterie.algorithms.drmas import DrMAS
from coterie.algorithms.joyagents import JoyAgents, JoyAgentsPaper
from coterie.algorithms.magrpo import MAGRPO
from coterie.algorithms.node_wise import NodeWise
from coterie.algorithms.selection import variation
from coterie.config.resolve import load_config
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.engine import Request
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.kernel.scene import Scene
from coterie.kernel.team import Team
from tests.games import Game, Tables, Tabular, close, estimate, exact, expected
from tests.outside import double
from tests.toys import (
    TEAM,
    Acting,
    Looping,
    Number,
    Sequential,
    Simultaneous,
    Tools,
    Toy,
    counting,
    one,
    scripted,
    worth,
)

DISTINCT = counting(0, 10**9)
"""A script that never says the same twice."""


def node_wise(**settings) -> NodeWise:
    return C3.model_validate({"nodes": "all", "num_generations": 4, "continuations": 1, **settings})


def played(environment, script=None, index: int = 0, play: Play | None = None, **settings):
    play = play or scripted(environment, script)
    return play, one(play, node_wise(**settings).collect(play, environment.task("train", index)))


# Groups -------------------------------------------------------------------------------------------


def test_every_decision_of_the_base_is_a_node_with_its_own_reply_in_its_group_once():
    """Invariant 1: one prompt, version and snapshot; the base's reply and return are counted once."""
    _, found = played(Sequential(max_turns=2), DISTINCT, continuations=3)
    (log,) = found.logs
    spoken = [reply for _, reply in log.replies()]
    assert [group.key.role for group in found.groups] == ["a", "b", "a", "b"]
    for at, group in enumerate(found.groups):
        assert group.committed == 0
        assert len(group.members) == 4
        assert {len(member.returns) for member in group.members} == {3}
        own = group.members[0].samples[0]
        assert own.text == spoken[at].text
        assert len({member.samples[0].prompt_ids for member in group.members}) == 1
        assert len({member.samples[0].seed for member in group.members}) == 4
        assert len({member.samples[0].text for member in group.members}) == 4
    whole = sum(worth(reply.text) for reply in spoken if reply.role == "a")
    team = log.rewards()["team"]
    assert found.groups[0].members[0].returns[0] == pytest.approx(whole + team)


def test_what_a_reply_earned_is_weighed_and_split():
    """The role's own rewards from there on, and the team's by their weight."""
    _, once = played(Sequential(max_turns=1))
    _, thrice = played(Sequential(max_turns=1), team_weight=3.0)
    for one_, three in zip(once.groups[1].members, thrice.groups[1].members, strict=True):
        own = worth(one_.samples[0].text)
        assert one_.value == pytest.approx(own + one_.parts["team/team"])
        assert three.value == pytest.approx(own + 3 * one_.parts["team/team"])


def test_the_parts_of_a_member_add_up_to_its_mean_return():
    _, found = played(Simultaneous(max_turns=2), counting(0, 2), continuations=3, team_weight=0.5)
    members = [member for group in found.groups for member in group.members]
    assert any(len(set(member.returns)) > 1 for member in members)
    for member in members:
        assert sum(member.parts.values()) == pytest.approx(member.value)


def test_without_the_base_all_alternatives_are_fresh():
    play, found = played(Sequential(max_turns=1), DISTINCT, reuse_base=False)
    assert all(group.committed is None for group in found.groups)
    # the base, then a's node: 4 replies and 4 of b's after them; then b's node: 4 replies
    assert play.budget.replies == {"a": 1 + 4, "b": 1 + 4 + 4}


def test_equal_replies_are_valued_once_and_share_their_returns():
    """a says 0 or 1: six replies are two alternatives, and the base's own needs no continuation."""
    play, found = played(Sequential(max_turns=1), counting(0, 1), num_generations=6)
    for group in found.groups:
        told = {member.samples[0].text: member.returns for member in group.members}
        assert all(member.returns == told[member.samples[0].text] for member in group.members)
        assert len(group.members) == 6
    others = len({member.samples[0].text for member in found.groups[0].members}) - 1
    assert others == 1
    assert play.budget.replies == {"a": 1 + 5, "b": 1 + others + 5}


def test_a_node_where_all_replies_are_equal_costs_no_continuation():
    play, found = played(Sequential(max_turns=1), lambda role, prompt, rng: "3", num_generations=4, continuations=5)
    assert play.budget.replies == {"a": 1 + 3, "b": 1 + 3}
    assert [group.live for group in found.groups] == [False, False]


def test_where_roles_speak_at_once_the_others_keep_what_they_said():
    heard: list[dict[str, str]] = []

    class Listening(Simultaneous):
        max_turns: int = 1

        async def play(self, task: Number, scene: Scene) -> None:
            replies = await scene.ask_all({"a": "a", "b": "b"})
            heard.append({role: reply.text for role, reply in replies.items()})
            scene.team_reward(float(replies["a"].text))
            scene.succeed()

    _, found = played(Listening(), counting(0, 10**9))
    assert [group.key.role for group in found.groups] == ["a", "b"]
    base, *rest = heard
    assert sum(one["a"] == base["a"] for one in rest) == 3
    assert sum(one["b"] == base["b"] for one in rest) == 3
    assert len(rest) == 6


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize(("alternatives", "continuations"), [(2, 1), (4, 1), (4, 2), (3, 3)])
def test_calls_are_as_many_as_the_formula_says(alternatives, continuations, reuse):
    """Invariant 4, of six decisions: C = T + sum over nodes of what its alternatives and continuations ask."""
    length = 6
    play, found = played(
        Sequential(max_turns=3), DISTINCT, num_generations=alternatives, continuations=continuations, reuse_base=reuse
    )
    if reuse:
        calls = length * alternatives + (alternatives * continuations - 1) * length * (length - 1) // 2
    else:
        calls = length + sum(alternatives * (1 + continuations * (length - 1 - at)) for at in range(length))
    assert play.budget.replies.total() == calls
    assert sum(len(member.returns) for group in found.groups for member in group.members) == (
        length * alternatives * continuations
    )
    if (alternatives, continuations) in ((4, 1), (4, 2)):
        assert calls == {(1, True): 69, (1, False): 90, (2, True): 129, (2, False): 150}[continuations, reuse]


def test_some_decisions_of_the_episode_or_of_each_role():
    environment = Sequential(max_turns=4)
    _, found = played(environment, nodes="uniform", num_nodes=3)
    assert len(found.groups) == 3
    _, found = played(environment, nodes="per_agent", num_nodes=2)
    assert Counter(group.key.role for group in found.groups) == {"a": 2, "b": 2}
    assert {group.weight for group in found.groups} == {2.0}, "two for four"
    seen = {
        group.point
        for index in range(30)
        for group in played(environment, index=index, nodes="uniform", num_nodes=1)[1].groups
    }
    assert seen == set(range(8)), "every decision may be one"
    _, again = played(environment, nodes="uniform", num_nodes=3)
    assert [group.key for group in again.groups] == [
        group.key for group in played(environment, nodes="uniform", num_nodes=3)[1].groups
    ]


def test_bases_are_episodes_of_their_own():
    _, found = played(Sequential(max_turns=1), bases=3)
    assert [log.id for log in found.logs] == ["0", "1", "2"]
    assert {group.key.episode for group in found.groups} == {0, 1, 2}
    assert len({group.key for group in found.groups}) == 6


def test_only_the_branched_reply_is_in_the_group():
    """Invariant 6: what is played after it only values it."""
    _, found = played(Sequential(max_turns=2), continuations=2)
    drawn = {member.samples[0].seed for group in found.groups for member in group.members}
    assert all(len(member.samples) == 1 for group in found.groups for member in group.members)
    assert len(drawn) == 4 * 4


def test_a_group_knows_whether_anything_is_decided_after_it():
    _, found = played(Sequential(max_turns=1))
    assert [group.last for group in found.groups] == [False, True]


# Branches -----------------------------------------------------------------------------------------


class Tossing(Toy):
    """One decision, then a coin: the reward is the coin's."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "say")
        scene.team_reward(scene.rng.random())


def test_every_continuation_has_chance_of_its_own():
    _, found = played(Tossing(), continuations=3)
    returns = [value for member in found.groups[0].members for value in member.returns]
    assert len(set(returns)) == 12


def test_the_same_seed_gives_the_same_rollout_in_any_order():
    """Invariant 3: branches that are played in another order change nothing."""
    _, found = played(Looping(), continuations=2)

    class Backwards(Play):
        async def together(self, *branches):
            results = await super().together(*reversed(branches))
            return results[::-1]

    _, again = played(Looping(), continuations=2, play=Backwards(Looping(), TEAM, ScriptedEngine(counting()), seed=0))
    assert again == found
    _, other = played(Looping(), continuations=2, play=scripted(Looping(), seed=1))
    assert other.groups != found.groups


def test_a_branch_can_be_played_again_alone():
    """The prompt and seed of an alternative say everything: the engine gives it again."""
    _, found = played(Sequential(max_turns=2))
    for group in found.groups:
        for member in group.members:
            (sample,) = member.samples
            prompt = bytes(sample.prompt_ids).decode()
            request = Request(
                key=("t", 0, "x", sample.role), policy=sample.policy, role=sample.role, prompt=prompt,
                prompt_ids=sample.prompt_ids, seeds=(sample.seed,), temperature=1.0, top_p=1.0, max_tokens=256, stop=(),
            )  # fmt: skip
            (again,) = asyncio.run(ScriptedEngine(counting()).generate([request]))
            assert again[0].text == sample.text


def test_branches_share_the_bases_prefix_and_no_call_runs_twice():
    """Invariant 2."""
    play, found = played(Tools(), continuations=2)
    # base: a, double, fail, b. a's node: 7 continuations with two calls each; b's node: none left
    assert play.budget.calls.total() == 2 + 7 * 2
    assert [group.point for group in found.groups] == [0, 1]


def test_points_after_an_external_effect_are_no_nodes_and_are_counted():
    play, found = played(Tools(effect="external"))
    assert play.budget.dropped["after_external"] == 1
    assert found.groups == (), "and no alternative may change the world, so the first point has none either"


@pytest.mark.parametrize(
    "algorithm",
    [
        node_wise(num_generations=3),
        node_wise(num_generations=3, reuse_base=False),
        ATGRPO(num_generations=3),
        MAGRPO(num_generations=3),
        MAGRPO(num_generations=3, expansion="greedy"),
        MAGRPO(num_generations=3, baseline="greedy"),
    ],
)
def test_where_any_reply_would_change_the_world_none_is_compared(algorithm):
    """Those left would be the ones that did nothing, chosen by what they did: the gradient could change its sign."""
    groups, acted, environment = 0, 0, Acting()
    for index in range(40):
        found = one(play := scripted(environment), algorithm.collect(play, environment.task("train", index)))
        for group in found.groups:
            groups += 1
            assert not any(worth(member.samples[0].text) % 2 for member in group.members)
            assert len(group.members) == 3
        acted += play.budget.dropped["external_effect"] > 0
        assert len(found.logs) == 1, "the story is told in any case"
    assert groups
    assert acted


class Later(Toy):
    """a speaks twice; an odd token, the first or the second, changes the world in the end."""

    which: int = 0

    async def play(self, task: Number, scene: Scene) -> None:
        said = [worth((await scene.ask("a", "first")).text)]
        said.append(worth((await scene.ask("a", f"then {said[0]}")).text))
        if said[self.which] % 2:
            await scene.call(double, 1, effect="external")
        scene.team_reward(said[0] + 100 * said[1])


def test_what_acts_deeper_in_a_tree_is_not_compared_higher_up():
    higher, environment = 0, Later()
    for index in range(60):
        play = scripted(environment)
        found = one(play, MAGRPO(num_generations=2).collect(play, environment.task("train", index)))
        first = [group for group in found.groups if group.point == 0]
        higher += len(first)
        assert not any(worth(member.samples[0].text) % 2 for group in first for member in group.members)
    assert higher


def test_a_story_that_could_not_be_compared_is_worth_what_it_came_to():
    seen, environment = 0, Later(which=1)
    for index in range(60):
        play = scripted(environment)
        found = one(play, MAGRPO(num_generations=3).collect(play, environment.task("train", index)))
        first = [group for group in found.groups if group.point == 0]
        if first and not any(group.key.path == "0@1" for group in found.groups):
            seen += 1
            assert first[0].members[0].value == found.logs[0].rewards()["team"]
    assert seen, "another reply would have acted, the story's own did not"


class Faulty(ScriptedEngine):
    """Fails for some prompts."""

    def __init__(self, fails) -> None:
        super().__init__(counting())
        self.fails = fails

    async def generate(self, requests):
        if any(self.fails(request) for request in requests):
            raise Unavailable("engine", "by design")
        return await super().generate(requests)


def test_a_fault_shrinks_a_group_and_is_never_a_zero():
    """Invariant 5."""
    environment = Sequential(max_turns=1)
    _, whole = played(environment)
    lost = [member.samples[0].text for member in whole.groups[0].members]
    # b is asked after a's replies; the engine fails where one alternative's words are shown
    odd = next(text for text in lost[1:] if lost.count(text) == 1)
    engine = Faulty(lambda request: request.role == "b" and f"a{odd}" in str(request.prompt))
    play = Play(environment, TEAM, engine, seed=0)
    found = one(play, node_wise().collect(play, environment.task("train", 0)))
    # a wave is one call of the engine: all that b is asked after a's alternatives fails with the one
    assert play.budget.dropped["engine"] == 3
    assert play.budget.dropped["lone"] == 1, "the base's own reply is left, with nothing to compare it with"
    assert [group.key.role for group in found.groups] == ["b"]


def test_a_fault_in_a_continuation_leaves_the_others_of_its_reply():
    """One continuation of one alternative meets a call that cannot be made."""
    failed = []

    def flaky(number: int) -> int:
        if number == 4 and not failed:
            failed.append(number)
            raise Unavailable("call", "by design")
        return number

    calls = iter(range(99))
    play = scripted(Sequential(max_turns=1))
    run_on = play.run

    async def sometimes(cursor, *args, **kwargs):
        flaky(next(calls))
        return await run_on(cursor, *args, **kwargs)

    play.run = sometimes
    found = one(play, node_wise(continuations=2).collect(play, Sequential(max_turns=1).task("train", 0)))
    assert failed
    assert sorted(len(member.returns) for member in found.groups[0].members) == [1, 2, 2, 2]
    assert play.budget.dropped == {"call": 1}


# The gradient -------------------------------------------------------------------------------------

EXACT = [
    (Game(agents=2, turns=1), {}),
    (Game(agents=2, turns=1), {"num_generations": 3}),
    (Game(agents=1, turns=2), {}),
    (Game(agents=1, turns=2), {"continuations": 2}),
    (Game(agents=1, turns=2), {"reuse_base": False}),
    (Game(agents=1, turns=3), {}),
    (Game(agents=1, turns=1), {"bases": 2}),
    (Game(agents=1, turns=3, ending=True), {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("game", "settings"), EXACT)
def test_its_expectation_is_the_gradient_of_the_expected_return(game, settings):
    """Every outcome of every draw, through the real sampler: leave-one-out at all nodes is unbiased."""
    algorithm = node_wise(**{"num_generations": 2, **settings})
    assert close(expected(game, algorithm, Tables()), exact(game, Tables()), 1e-9)


@pytest.mark.parametrize("nodes", ["uniform", "per_agent"])
def test_a_node_drawn_for_several_decisions_weighs_as_many(nodes, monkeypatch):
    """No implicit 1/T: over every draw of the one node too, of an episode whose length the replies decide."""
    game = Game(agents=1, turns=3, ending=True)
    algorithm = node_wise(num_generations=2, nodes=nodes, num_nodes=1)
    total: Counter[tuple] = Counter()
    for lot in range(6):  # uniform over one, two and three decisions
        monkeypatch.setattr("coterie.sampling.node_mc.Random", lambda _, lot=lot: Lots(lot))
        for at, value in expected(game, algorithm, Tables()).items():
            total[at] += value / 6
    assert close(total, exact(game, Tables()), 1e-9)


class Lots:
    """Draws one, by a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def sample(self, lot: list[int], count: int) -> list[int]:
        assert count == 1
        return [lot[self.number % len(lot)]]


def test_the_mean_of_the_group_as_baseline_shrinks_it():
    game = Game(agents=1, turns=2)
    wanted = {at: value / 2 for at, value in exact(game, Tables()).items()}
    assert close(expected(game, node_wise(num_generations=2, advantage="center"), Tables()), wanted, 1e-9)


# Dr. MAS ------------------------------------------------------------------------------------------


def drmas(environment, **settings):
    play = scripted(environment)
    return play, one(play, DrMAS(num_generations=4, **settings).collect(play, environment.task("train", 0)))


def test_a_role_is_compared_with_itself():
    _, found = drmas(Sequential(max_turns=2))
    assert [(group.key.role, group.scope, len(group.members)) for group in found.groups] == [
        ("a", "task", 8), ("b", "task", 8)]  # fmt: skip
    assert all(
        {sample.role for member in group.members for sample in member.samples} == {group.key.role}
        for group in found.groups
    )
    _, found = drmas(Sequential(max_turns=2), count="episode")
    assert [len(group.members) for group in found.groups] == [4, 4]
    assert all(len(member.samples) == 2 for group in found.groups for member in group.members)


def test_replies_count_an_episode_as_often_as_the_role_spoke():
    """What counting by reply changes: the mean is weighed by turns."""
    _, found = drmas(Looping())
    (group,) = found.groups
    lengths = Counter(member.returns for member in group.members)
    assert sum(lengths.values()) == sum(len(list(log.replies())) for log in found.logs)


class Sometimes(Toy):
    """b speaks in one episode of many."""

    async def play(self, task: Number, scene: Scene) -> None:
        reply = await scene.ask("a", "first")
        if int(reply.text) == 7:
            await scene.ask("b", "second")
        scene.team_reward(float(reply.text))


def test_a_role_that_spoke_in_one_episode_alone_is_not_reinforced_blindly():
    environment = Sometimes()
    said = iter([7, 1, 2, 3, 0])
    play = scripted(environment, lambda role, prompt, rng: str(next(said)) if role == "a" else "x")
    found = one(play, DrMAS(num_generations=4).collect(play, environment.task("train", 0)))
    assert [group.key.role for group in found.groups] == ["a"]
    assert play.budget.dropped == {"lone": 1}


# Settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm.selection=signal"], "one continuation cannot tell"),
        (["algorithm.selection=shrunk"], "one continuation cannot tell"),
        (["algorithm.selection=shrunk", "algorithm.noise=last_exact"], "cannot tell"),
        (["algorithm.selection=raw_var", "algorithm.floor=3", "algorithm.top_k=2"], "top_k = 2 is less than"),
        (["algorithm.top_k=2"], "top_k has no effect"),
        (["algorithm.selection=raw_var", "algorithm.noise=last_exact"], "noise has no effect"),
        (["algorithm.selection=sample", "algorithm.floor=1"], "floor has no effect"),
        (["algorithm.nodes=all", "algorithm.num_nodes=3"], "num_nodes has no effect"),
        (["algorithm.selection=loudest"], "selection"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_at_start(overrides, message):
    """Invariants 10 and 13."""
    with pytest.raises(ConfigError, match=message):
        load_config("plan_path", ["algorithm.name=joyagents", *overrides])


def test_one_continuation_is_enough_where_scoring_has_no_chance():
    load_config("plan_path", ["algorithm.name=joyagents", "algorithm.selection=signal", "algorithm.noise=last_exact"])


def test_the_presets_are_as_their_papers_and_we_say():
    ours, paper = JoyAgents(), JoyAgentsPaper()
    assert (paper.bases, paper.nodes, paper.num_generations, paper.continuations, paper.reuse_base) == (
        1,
        "all",
        4,
        1,
        True,
    )
    assert (paper.selection, paper.top_k, paper.among, paper.floor, paper.advantage) == (
        "raw_var",
        5,
        "query",
        0,
        "standardize",
    )
    assert paper.loss == {"name": "clip", "kl": 0.001, "denominator": "sequences"}
    assert (ours.bases, ours.nodes, ours.num_nodes, ours.num_generations, ours.continuations) == (
        1,
        "all",
        2,
        4,
        1,
    )
    assert (ours.selection, ours.top_k, ours.among, ours.floor, ours.advantage) == (
        "all_live",
        None,
        "batch",
        1,
        "leave_one_out",
    )
    assert ours.loss == {"name": "clip", "epsilon_high": 0.28, "denominator": "tasks"}
    assert C3.loss == {"name": "clip", "denominator": "tasks"}
    assert (C3().advantage, DrMAS().advantage) == ("leave_one_out", "standardize")


def test_selection_is_part_of_the_algorithm():
    _, found = played(Sequential(max_turns=2), continuations=2)
    chosen = JoyAgents(selection="signal", top_k=2, floor=1).select(found.groups, Random(0))
    assert {group.policy for group in chosen} == {"pa", "pb"}
    assert len(chosen) == 2


# What a rule is worth, exactly ----------------------------------------------------------------------


class Decisive(Toy):
    """d's action is of no use, c's decides: it succeeds nine times in ten when c matches a. b adds a little."""

    roles: ClassVar = ("d", "a", "b", "c")
    useless: bool = True

    async def play(self, task: Number, scene: Scene) -> None:
        if self.useless:
            await scene.ask("d", "d")
        first = (await scene.ask("a", "a")).text
        second = (await scene.ask("b", "b")).text
        third = (await scene.ask("c", f"c{first}")).text
        scene.team_reward(float(scene.rng.random() < chance(first, second, third)))


def chance(first: str, second: str, third: str) -> float:
    return (0.85 if first == third else 0.05) + 0.05 * (second == "1")


def success(tables: Tables) -> float:
    """The exact expected reward."""
    total = 0.0
    for a, b, c in itertools.product("01", repeat=3):
        share = tables("a")[int(a)] * tables("b")[int(b)] * tables(f"c{a}")[int(c)]
        total += share * chance(a, b, c)
    return total


def improvement(rule: str, useless: bool, steps: int) -> list[float]:
    """What one step along the gradient of the chosen groups adds to the exact success, many times from one start."""
    algorithm = JoyAgents.model_validate({
        "nodes": "all", "bases": 1, "num_generations": 4, "continuations": 4, "selection": rule, "floor": 0, "top_k": 2
    })  # fmt: skip
    game, start = Decisive(useless=useless), Tables(seed=3)
    before = success(start)
    gained: list[float] = []
    for index in range(steps):
        play = Play(game, Team(dict.fromkeys(game.roles, "p")), Tabular(start), seed=index)
        found = one(play, algorithm.collect(play, game.task("train", index)))
        chosen = algorithm.select(found.groups, Random(index))
        step = estimate(Collected(tuple(chosen), ()), algorithm, start, game.roles)
        after = Tables(logits={
            at: tuple(logit + 0.3 * step[at, action] for action, logit in enumerate(logits))
            for at, logits in start.logits.items()
        })  # fmt: skip
        gained.append(success(after) - before)
    return gained


@pytest.mark.long
def test_signal_beats_chance_and_variance_loses_to_noise():
    """Three roles that matter and one that does not: the exact improvement of a step, mean of 400.

    Two actions a role: four draws are two alternatives, each played four times.
    """
    found = {rule: improvement(rule, True, 400) for rule in ("signal", "random_live", "raw_var")}
    means = {rule: fmean(values) for rule, values in found.items()}
    error = {rule: stdev(values) / 20 for rule, values in found.items()}
    assert means["signal"] > means["random_live"] + 2 * (error["signal"] + error["random_live"])
    quiet = fmean(improvement("raw_var", False, 400))
    assert means["raw_var"] < means["signal"] - 2 * (error["signal"] + error["raw_var"])
    assert means["raw_var"] < quiet, "the useless decision takes places from those that matter"


def test_pooled_members_count_once_in_what_a_group_varies_by():
    """Alike members share one value: as often as they were drawn they would look like as many measurements."""
    _, found = played(Sequential(max_turns=1), counting(0, 1), num_generations=6, continuations=2)
    for group in found.groups:
        assert group.pooled
        firsts = {member.samples[0].completion_ids: member for member in reversed(group.members)}
        alone = replace(group, members=tuple(firsts.values()), committed=None, pooled=False)
        assert variation(group) == variation(alone)
