"""MAGRPO and its expansion: golden gradients, exact expectations by enumeration, counts, ends, faults.

Numbers in comments refer to the list of claims a correct implementation must meet; D1 and the like
to defects of the published code that must not come back.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie import train
from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.magrpo import MAGRPO
from coterie.config.resolve import load_config
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.group import Group, Key, Member
from coterie.kernel.scene import Scene
from coterie.kernel.team import Team, route
from coterie.learning.batch import Row, rows_of
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip, PolicyGradient
from coterie.models.load import save_model
from tests.games import Game, Tables, Tabular, close, collect, estimate, exact, expected, outcomes, play_with
from tests.outside import touch
from tests.toys import Number, Sequential, Simultaneous, Toy, one, policies, scripted, tiny

U = ((10.0, 7.0), (7.0, 0.0))
"""The game of spec and paper; "action 1" there is action 0 here."""
MATRIX = Game(matrix=U)
EVEN = Tables(logits={"a": (0.0, 0.0), "b": (0.0, 0.0)})
SKEWED = Tables(logits={"a": (math.log(3), 0.0), "b": (0.0, 0.0)})


def magrpo(size: int = 2, **settings) -> MAGRPO:
    return MAGRPO(num_generations=size, **settings)


# 5. ---------------------------------------------------------------------------------------------


def test_the_matrix_games_gradient_is_five_fourths_for_both():
    found = exact(MATRIX, EVEN)
    assert found["a", 0] == pytest.approx(1.25)  # (10 + 7)/2 - (7 + 0)/2 = 5, times p (1 - p) = 1/4
    assert found["b", 0] == pytest.approx(1.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "size", "wanted"),
    [
        ({"baseline": "none"}, 2, 1.25),
        ({"baseline": "leave_one_out"}, 2, 1.25),
        ({"baseline": "leave_one_out"}, 4, 1.25),
        ({"baseline": "mean"}, 2, 0.625),
        ({"baseline": "mean"}, 4, 0.9375),
        ({"baseline": "greedy"}, 2, 1.25),
        ({"baseline": "leave_one_out", "joint": "cross"}, 2, 1.25),
        ({"scale": "deviation"}, 2, 0.1875),
        ({"scale": "deviation"}, 4, 0.279706),
    ],
)
def test_each_baselines_expected_estimate_at_even_odds(settings, size, wanted):
    """D5: the published defaults make four algorithms one; D6, D7: what dividing by the deviation costs."""
    found = expected(MATRIX, magrpo(size, **settings), EVEN)
    assert found["a", 0] == pytest.approx(wanted, abs=2e-6)
    assert found["b", 0] == pytest.approx(wanted, abs=2e-6)


# 6. ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_with_uneven_odds_the_mean_is_parallel_to_the_gradient_and_the_deviation_is_not(size):
    truth = exact(MATRIX, SKEWED)
    assert (truth["a", 0], truth["b", 0]) == pytest.approx((0.9375, 1.0))
    mean = expected(MATRIX, magrpo(size), SKEWED)
    assert close(mean, {at: value * (size - 1) / size for at, value in truth.items()}, 1e-9)
    scaled = expected(MATRIX, magrpo(size, scale="deviation"), SKEWED)
    wanted = {2: (0.140625, 0.203125), 4: (0.219181, 0.301974)}[size]
    assert (scaled["a", 0], scaled["b", 0]) == pytest.approx(wanted, abs=2e-6)


def test_subtracting_the_maximum_as_the_library_does_points_elsewhere():
    """D7: why `greedy` is ReMax's baseline and not R - max R; golden (0.679688, 0.59375) against (0.9375, 1.0)."""
    total = [0.0, 0.0]
    for chance, found in outcomes(MATRIX, magrpo(), SKEWED):
        for at, group in enumerate(found.groups):
            for member in group.members:
                gap = member.value - max(group.values)
                action, share = int(member.samples[0].text), SKEWED("ab"[at])[0]
                total[at] += chance * gap * ((action == 0) - share) / len(group.members)
    assert total == pytest.approx([0.679688, 0.59375], abs=1e-6)


class Steady(Toy):
    """Every turn pays the team 1, and 2 more where both say the same."""

    max_turns: int = 4

    async def play(self, task, scene: Scene) -> None:
        for _ in scene.turns(self.max_turns):
            replies = await scene.ask_all({"a": "x", "b": "y"})
            scene.team_reward(1.0)
            if replies["a"].text == replies["b"].text and self.max_turns == 1:
                scene.team_reward(2.0, "same")


@pytest.mark.parametrize("expansion", ["all", "greedy"])
def test_what_follows_is_discounted_and_weighed_by_hand(expansion):
    """Of 1 a turn, at half its weight: 1/2 now, and 1/2 (1/2 + 1/4 + 1/8) later."""
    play = scripted(Steady())
    algorithm = magrpo(expansion=expansion, discount=0.5, team_weight=0.5)
    found = one(play, algorithm.collect(play, play.task("train", 0)))
    for group in found.groups[:2]:
        for member in group.members:
            assert member.value == 0.9375
            assert member.parts == {"team/team": 0.5, "later": 0.4375}


def test_a_reward_of_some_joint_actions_is_shared_by_all_that_play_a_reply():
    draws = itertools.count()
    play = scripted(Steady(max_turns=1), lambda role, prompt, rng: str(next(draws) % 2))
    found = one(play, magrpo(joint="cross").collect(play, play.task("train", 0)))
    for group in found.groups:
        assert [member.samples[0].text for member in group.members] == ["0", "1"]
        for member in group.members:
            assert member.value == 2.0  # 3 with the partner's same word, 1 with the other
            assert member.parts == {"team/team": 1.0, "team/same": 1.0, "later": 0.0}


# 7. ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("joint", "size", "wanted"),
    [("aligned", 2, 3.375), ("aligned", 4, 0.8646), ("cross", 2, 1.8125), ("cross", 4, 0.3333)],
)
def test_cross_has_the_lower_variance(joint, size, wanted):
    algorithm = magrpo(size, baseline="leave_one_out", joint=joint)
    played = outcomes(MATRIX, algorithm, EVEN)
    values = [(chance, estimate(found, algorithm, EVEN, "ab")["a", 0]) for chance, found in played]
    mean = sum(chance * value for chance, value in values)
    assert sum(chance * (value - mean) ** 2 for chance, value in values) == pytest.approx(wanted, abs=1e-4)


# 8, 9. ------------------------------------------------------------------------------------------


class TwoTurns(Game):
    """r_0 = 1 when the first actions agree; r_1 = 3 when all four are "1"."""

    turns: int = 2

    def reward(self, way):
        if len(way) == 1:
            return float(way[0][0] == way[0][1])
        return 3.0 * ({*way[0], *way[1]} == {1})


UNIFORM = Tables(logits=dict.fromkeys(("a", "b", "a0", "a1", "b0", "b1"), (0.0, 0.0)))


@pytest.mark.slow  # 4,096 outcomes of a tree, played one by one
@pytest.mark.parametrize("discount", [pytest.param(1.0, marks=pytest.mark.long), 0.5])
def test_the_two_turn_games_golden_gradients(discount):
    """D12: nodes summed without weight give 0.1875. D17: the discount is honoured."""
    found = expected(TwoTurns(), magrpo(baseline="leave_one_out", discount=discount), UNIFORM)
    assert found["a", 1] == pytest.approx({1.0: 0.09375, 0.5: 0.046875}[discount])
    assert found["a1", 1] == pytest.approx(discount * 0.09375)
    assert found["a0", 1] == pytest.approx(0.0)
    assert close(found, exact(TwoTurns(), UNIFORM, discount), 1e-9)


def test_returns_are_the_reward_plus_the_discounted_mean_of_the_children():
    algorithm = magrpo(3, discount=0.5)
    found = collect(Game(turns=2, seed=3), algorithm, Tables())
    nodes = {group.key.path: group for group in found.groups if group.key.role == "a"}
    root = nodes.pop("0@0")
    children = [nodes["0@1"], *(nodes[f"0/0.{number}@1"] for number in (1, 2))]
    for member, child in zip(root.members, children, strict=True):
        assert member.value == pytest.approx(member.parts["team/team"] + 0.5 * fmean(child.values))
        assert member.parts["later"] == pytest.approx(0.5 * fmean(child.values))
    assert all(member.parts["later"] == 0 for child in children for member in child.members)


def test_without_discount_of_the_future_returns_are_rewards():
    found = collect(Game(turns=2, seed=3), magrpo(3, discount=0.0), Tables())
    assert all(member.value == member.parts["team/team"] for group in found.groups for member in group.members)
    assert {group.weight for group in found.groups if group.key.path != "0@0"} == {0.0}


# 10. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("joint", "joints"), [("aligned", 3), ("cross", 9)])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_tree_has_as_many_nodes_and_draws_as_the_formulas_say(joint, joints, turns):
    algorithm, tables = magrpo(3, joint=joint), Tables()
    game = Game(turns=turns)
    engine = Tabular(tables)
    play = play_with(game, engine)
    found = one(play, algorithm.collect(play, game.task("train", 0)))
    nodes = sum(joints**depth for depth in range(turns))
    assert len(found.groups) == 2 * nodes
    assert play.budget.replies == {"a": 3 * nodes, "b": 3 * nodes}
    assert play.budget.engine_calls == turns  # a wave a depth
    for group in found.groups:
        assert len(group.members) == 3
        assert {len(member.returns) for member in group.members} == {joints // 3}
        depth = int(group.key.path.split("@")[1])
        assert group.weight == pytest.approx(joints**-depth)
    assert [log.turns for log in found.logs] == [turns]


def test_cross_credits_a_reply_with_the_mean_of_what_contains_it():
    """D13, D14: the library sums, and "crossed" there gives every role the first joint returns."""

    class Listed(Game):
        """Returns 1, 2, 3, 4 of the joint actions (0,0), (0,1), (1,0), (1,1)."""

        def reward(self, way):
            return 1.0 + 2 * way[0][0] + way[0][1]

    found = [
        {group.key.role: group.values for group in found.groups}
        for _, found in outcomes(Listed(), magrpo(joint="cross"), EVEN)
        if all([member.samples[0].text for member in group.members] == ["0", "1"] for group in found.groups)
    ]
    assert found == [{"a": (1.5, 3.5), "b": (2.0, 3.0)}]
    with pytest.raises(ConfigError, match="joint = 'crossed'"):
        load_config("plan_path", ["algorithm.name=magrpo", "algorithm.joint=crossed"])


@pytest.mark.parametrize("agents", [1, 3])
def test_cross_with_one_role_is_aligned_and_three_roles_work_in_both(agents):
    """D24: the number of roles is written in one place."""
    game, tables = Game(agents=agents, turns=2), Tables()
    for joint in ("aligned", "cross"):
        found = collect(game, magrpo(joint=joint), tables)
        assert len(found.groups) == agents * (1 + (2 if joint == "aligned" else 2**agents))
    if agents == 1:
        assert found.groups == collect(game, magrpo(), tables).groups


# 11, 12. ----------------------------------------------------------------------------------------


def test_the_four_baselines_differ():
    """D5, D8: each is what its name says, and one object owns it."""
    returns = (1.0, 2.0, 4.0, 0.5)
    assert magrpo_advantages(returns, "none") == returns
    assert magrpo_advantages(returns, "mean") == pytest.approx((-0.875, 0.125, 2.125, -1.375))
    assert magrpo_advantages(returns, "leave_one_out") == pytest.approx((-3.5 / 3, 0.5 / 3, 8.5 / 3, -5.5 / 3))
    assert magrpo_advantages(returns, "greedy", greedy=3.0) == pytest.approx((-2.0, -1.0, 1.0, -2.5))


def magrpo_advantages(returns, baseline, greedy=None, **settings):
    sample = collect(Game(agents=1), magrpo(2), Tables()).groups[0].members[0].samples
    members = tuple(Member(sample, (value,)) for value in returns)
    return magrpo(len(returns), baseline=baseline, **settings).advantages(
        Group(Key("t", 0, "0@0", "a"), "prompt", members, baseline=greedy)
    )


@pytest.mark.slow
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.integers(-100, 100), st.randoms())
def test_shifting_returns_changes_nothing_and_permuting_them_permutes(returns, shift, rng):
    order = list(range(len(returns)))
    rng.shuffle(order)
    for baseline, greedy in (("mean", None), ("leave_one_out", None), ("greedy", 7.0)):
        plain = magrpo_advantages(returns, baseline, greedy)
        moved = magrpo_advantages([r + shift for r in returns], baseline, None if greedy is None else greedy + shift)
        assert moved == pytest.approx(plain)
        permuted = magrpo_advantages([returns[at] for at in order], baseline, greedy)
        assert permuted == pytest.approx([plain[at] for at in order])


def test_the_scale_divides_and_never_centres():
    returns = (1.0, 2.0, 4.0, 0.5)  # mean 1.875, population deviation sqrt(1.796875) = 1.340476
    assert magrpo_advantages(returns, "none", scale="deviation") == pytest.approx(
        [r / 1.340476 for r in returns], abs=1e-5
    )
    assert magrpo_advantages((1.0, 1.0 + 1e-7), "mean", scale="deviation") == (0.0, 0.0)  # D6: rounding is no signal


# 13, 14, 15. ------------------------------------------------------------------------------------


def test_with_one_role_and_one_turn_it_is_grpo_sample_for_sample():
    game, tables = Game(agents=1, actions=3), Tables(3)
    ours = collect(game, magrpo(4), tables)
    theirs = collect(game, ATGRPO(num_generations=4, advantage="center"), tables)
    assert [m.samples for g in ours.groups for m in g.members] == [m.samples for g in theirs.groups for m in g.members]
    assert [magrpo(4).advantages(g) for g in ours.groups] == [
        ATGRPO(num_generations=4, advantage="center").advantages(g) for g in theirs.groups
    ]


def test_a_row_weighs_its_depths_mean_over_groups_and_tasks():
    """The loss of a step is the mean over tasks of sums over depths of means over nodes and members, tokens summed."""
    game, tables, algorithm = Game(turns=2), Tables(), magrpo(2)
    groups = [group for index in range(3) for group in collect(game, algorithm, tables, index).groups]
    routed = route(Team(dict.fromkeys("ab", "p")), groups, [algorithm.advantages(group) for group in groups])["p"]
    assert routed
    for one_, row in zip(routed, rows_of(routed, Clip(denominator="tasks", kl=0.1)), strict=True):
        depth = int(one_.group.split("@")[1].split("/")[0])
        assert row.token_weight == pytest.approx((1 / 3) * (1 / 2) * 2**-depth)


def test_a_node_of_equal_rewards_trains_nothing():
    """D20: not even with a scale."""

    class Flat(Game):
        def reward(self, way):
            return 0.7

    for settings in ({}, {"baseline": "leave_one_out"}, {"baseline": "greedy"}, {"scale": "deviation"}):
        algorithm = magrpo(3, **settings)
        found = collect(Flat(turns=2), algorithm, Tables())
        assert not any(group.live for group in found.groups)
        credit = [algorithm.advantages(group) for group in found.groups]
        routed = route(Team(dict.fromkeys("ab", "p")), found.groups, credit)
        assert rows_of(routed["p"], Clip(denominator="tasks")) == []


def test_a_group_beaten_by_its_greedy_baseline_as_one_is_live():
    members = collect(Game(agents=1), magrpo(2), Tables()).groups[0].members
    alike = tuple(Member(member.samples, (1.0,)) for member in members)
    key = Key("t", 0, "0@0", "a")
    assert Group(key, "prompt", alike, baseline=2.0).live
    assert not Group(key, "prompt", alike, baseline=1.0).live
    assert not Group(key, "prompt", alike).live


# 16, 17. ----------------------------------------------------------------------------------------


ENDING = 5
"""A task where one joint action of four ends the game at once."""


def test_an_end_is_each_branchs_own():
    """D16: solved and hopeless siblings do not share a fate, and no threshold ends a game behind its back."""
    game = Game(turns=3, ending=True, seed=1)
    found = collect(game, magrpo(4), Tables(), index=ENDING)
    root = next(group for group in found.groups if group.key.path == "0@0" and group.key.role == "a")
    partner = next(group for group in found.groups if group.key.path == "0@0" and group.key.role == "b")
    ended = [a.samples[0].text == b.samples[0].text == "0" for a, b in zip(root.members, partner.members, strict=True)]
    assert any(ended)
    assert not all(ended)
    for member, over in zip(root.members, ended, strict=True):
        assert (member.parts["later"] == 0) == over
    depth_one = [group for group in found.groups if group.key.path.endswith("@1") and group.key.role == "a"]
    assert len(depth_one) == ended.count(False)
    assert {group.weight for group in depth_one} == {1 / 4}  # over the nodes that would have been


def test_the_default_takes_every_turn():
    """D16: as published, a reward above a threshold of -0.2 ended every episode after its first turn."""

    class Ones(Game):
        def reward(self, way):
            return 1.0

    assert len(collect(Ones(turns=2), magrpo(3), Tables()).groups) == 2 * (1 + 3)


# the greedy spine -------------------------------------------------------------------------------


def test_the_spine_goes_on_with_the_best_joint_action():
    game, tables = Game(turns=3, actions=3, seed=5), Tables(3)
    found = collect(game, magrpo(4, expansion="greedy", discount=0.5), tables)
    assert [group.key.path for group in found.groups] == [f"0@{turn}" for turn in range(3) for _ in "ab"]
    assert [group.weight for group in found.groups] == [0.5**turn for turn in range(3) for _ in "ab"]
    told = [{reply.role: reply.text for reply in replies} for replies in _by_point(found.logs[0])]
    for turn in range(3):
        for group in (group for group in found.groups if group.key.path == f"0@{turn}"):
            assert group.committed is not None
            assert group.values[group.committed] == max(group.values)
            assert group.members[group.committed].samples[0].text == told[turn][group.key.role]


def _by_point(log):
    points: dict[int, list] = {}
    for point, reply in log.replies():
        points.setdefault(point, []).append(reply)
    return [points[at] for at in sorted(points)]


def test_in_one_turn_the_spine_is_the_tree():
    game, tables = Game(), Tables()
    spine, tree = (collect(game, magrpo(4, expansion=kind), tables) for kind in ("greedy", "all"))
    assert [g.values for g in spine.groups] == [g.values for g in tree.groups]
    assert [g.weight for g in spine.groups] == [g.weight for g in tree.groups]


@pytest.mark.slow
def test_every_joint_action_of_the_spine_is_played_on_to_the_end():
    """Its first turn's gradient is unbiased: what follows is the team's own play."""
    game, tables = Game(turns=2, seed=9), Tables()
    algorithm = magrpo(2, expansion="greedy", baseline="leave_one_out")
    estimates = [estimate(collect(game, algorithm, tables, index), algorithm, tables, "ab") for index in range(1500)]
    wanted = exact(game, tables)
    for at in (("a", 0), ("b", 0)):
        values = [one_[at] for one_ in estimates]
        error = (fmean(v * v for v in values) - fmean(values) ** 2) ** 0.5 / len(values) ** 0.5
        assert abs(fmean(values) - wanted[at]) < 3 * error


# the greedy baseline ----------------------------------------------------------------------------


def test_the_greedy_baseline_is_what_the_greedy_team_returns_from_that_node():
    game, tables = Game(turns=2, seed=4), Tables(seed=2)
    found = collect(game, magrpo(3, baseline="greedy", discount=0.5), tables)
    play = play_with(game, Tabular(tables))
    cursor = play.start(game.task("train", 0))
    one(play, play.run(cursor, temperature=0.0))
    first, second = (event.value for event in cursor.events if type(event).__name__ == "Rewarded")  # pyright: ignore[reportAttributeAccessIssue]
    assert found.groups[0].baseline == pytest.approx(first + 0.5 * second)
    assert len({group.baseline for group in found.groups if group.key.path != "0@0"}) > 1


# faults and the outside -------------------------------------------------------------------------


class Flaky(Tabular):
    """Cannot answer prompts of one branch."""

    async def generate(self, requests):
        if any("0/0.1" in request.key[2] for request in requests):
            raise Unavailable("engine", "by design")
        return await super().generate(requests)


def test_a_branch_lost_to_a_fault_is_missing_from_its_groups():
    game = Game(turns=2)
    engine = Flaky(Tables())
    play = play_with(game, engine)
    # the wave of depth one holds all branches, so all are lost but none is scored
    found = one(play, magrpo(3).collect(play, game.task("train", 0)))
    assert isinstance(found, Unavailable)
    assert play.budget.dropped["engine"] == 3


class Outside(Toy):
    """An external effect after the first turn."""

    async def play(self, task: Number, scene: Scene) -> None:
        for turn in scene.turns(2):
            replies = await scene.ask_all({"a": f"a{turn}", "b": f"b{turn}"})
            scene.team_reward(float(replies["a"].text))
            if turn == 0:
                await scene.call(touch, effect="external")


def test_the_world_is_changed_once_and_not_branched_afterwards():
    game = Outside()
    play = scripted(game)
    found = one(play, magrpo(3).collect(play, game.task("train", 0)))
    assert found.groups == ()
    assert play.budget.dropped["external_effect"] == 2
    assert play.budget.dropped["after_external"] == 2
    assert found.logs[0].turns == 2


def test_local_rewards_belong_to_the_joint_reward():
    game = Simultaneous(max_turns=1)
    play = scripted(game)
    found = one(play, magrpo(3, team_weight=2.0).collect(play, game.task("train", 0)))
    first, second = found.groups
    assert first.values == second.values
    for a, b in zip(first.members, second.members, strict=True):
        x, y = (float(member.samples[0].text) for member in (a, b))
        assert a.value == x + y + 2.0 * (x == y)
        assert a.parts == {"a/local": x, "b/local": y, "team/team": 2.0 * (x == y), "later": 0.0}


def test_roles_that_speak_in_turn_are_nodes_too():
    game = Sequential(max_turns=1)
    play = scripted(game)
    found = one(play, magrpo(2).collect(play, game.task("train", 0)))
    assert [group.key.role for group in found.groups] == ["a", "b", "b"]
    assert [group.weight for group in found.groups] == [1.0, 0.5, 0.5]


# settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm.joint=cross", "algorithm.num_generations=9"], r"9\^2 = 81 joint actions"),
        (["algorithm.max_joint_actions=8"], "max_joint_actions has no effect"),
        (["loss.epsilon=0.1"], "it is a setting of clip, gspo"),
        (["optimizer.updates_per_step=2"], "older weights"),
        (["algorithm.baseline=max"], "baseline"),
        (["algorithm.discount=1.5"], "discount"),
        (["algorithm.num_generations=1"], "num_generations"),
    ],
)
def test_what_cannot_work_is_refused_at_start(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config("plan_path", ["algorithm.name=magrpo", *overrides])


def test_a_tree_that_grows_without_end_is_refused_before_it_is_played():
    """Four turns of two roles in turn, four replies each: 4^7 nodes of the last decision alone."""
    game = Sequential(max_turns=4)
    play = scripted(game)
    with pytest.raises(
        ConfigError, match=r"1365 nodes of one task down to decision 6, more than algorithm.max_nodes = 1000"
    ):
        one(play, magrpo(4, max_nodes=1000).collect(play, game.task("train", 0)))
    assert one(scripted(game), magrpo(2, max_nodes=255).collect(play, game.task("train", 0))).groups


def test_its_defaults_are_the_papers():
    loss = MAGRPO().loss
    assert loss == {"name": "policy_gradient", "denominator": "tasks"}
    assert (MAGRPO().baseline, MAGRPO().scale, MAGRPO().joint, MAGRPO().expansion) == ("mean", "none", "aligned", "all")


# Monte Carlo on larger games ----------------------------------------------------------------------

GAMES = [
    Game(agents=2, actions=2, turns=1, seed=1),
    Game(agents=2, actions=6, turns=1, seed=2),
    Game(agents=3, actions=3, turns=1, seed=3),
    Game(agents=2, actions=3, turns=2, seed=4),
    Game(agents=2, actions=2, turns=3, seed=5),
    Game(agents=3, actions=2, turns=2, seed=6),
    Game(agents=2, actions=2, turns=3, seed=7, ending=True),
]


CROSSED = [game for game in GAMES if game.turns == 1 or (game.turns, game.agents) == (2, 2)]
"""With more turns or roles the tree of all combinations takes minutes."""
CHECKED = [(game, "aligned") for game in GAMES] + [(game, "cross") for game in CROSSED]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "joint"),
    [
        pytest.param(
            game,
            joint,
            id=f"{joint}-{game.agents}x{game.actions}x{game.turns}",
            marks=pytest.mark.long
            if game.agents == 3 or game.seed in (5, 7) or (joint, game.turns) == ("cross", 2)
            else (),
        )
        for game, joint in CHECKED
    ],
)
def test_over_two_thousand_samples_the_gradient_is_the_enumerated_one(game, joint):
    """Unbiased within three standard errors; the mean's expectation is (1 - 1/G) of it."""
    size, discount = 2, 0.9
    tables = Tables(game.actions, seed=game.seed)
    truth = exact(game, tables, discount)
    drawn = [
        collect(game, magrpo(size, joint=joint, baseline="greedy", discount=discount), tables, index)
        for index in range(2000)
    ]
    for baseline in ("none", "mean", "leave_one_out", "greedy"):
        algorithm = magrpo(size, joint=joint, baseline=baseline, discount=discount)
        scale = (size - 1) / size if baseline == "mean" else 1.0
        found = [estimate(one_, algorithm, tables, game.roles) for one_ in drawn]
        wrong = 0
        for at, value in truth.items():
            values = [one_[at] for one_ in found]
            error = (fmean(v * v for v in values) - fmean(values) ** 2) ** 0.5 / len(values) ** 0.5
            wrong += abs(fmean(values) - scale * value) > 3 * error
        assert wrong <= allowed(len(truth)), baseline


def allowed(comparisons: int) -> int:
    """How many of so many independent three-sigma comparisons may fail by chance, with probability 1e-4 of more."""
    share, total, count = 0.0027, 0.0, 0
    while True:
        total += math.comb(comparisons, count) * share**count * (1 - share) ** (comparisons - count)
        if total >= 1 - 1e-4:
            return count
        count += 1


# 4, 14: real networks -----------------------------------------------------------------------------

END = 2
RESPONSES = [(END,), (0, END), (1, END), (0, 0), (0, 1), (1, 0), (1, 1)]
"""Every reply of a language of two words and an end, of two tokens at most."""


def three_tokens(seed: int):
    """A network whose language has three tokens."""
    return replace(tiny(seed, scale=2.0), vocabulary=3)


def loglikelihood(model, prompt: tuple[int, ...], reply: tuple[int, ...]) -> torch.Tensor:
    """log pi(reply | prompt), written out."""
    logits = model.net(input_ids=torch.tensor([[*prompt, *reply]]), use_cache=False).logits[0, :, :3]
    logprobs = torch.log_softmax(logits.float(), -1)
    return sum((logprobs[len(prompt) + at - 1, token] for at, token in enumerate(reply)), torch.zeros(()))


def joint_reward(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    return 1.5 * (left == right) + 0.5 * len(left) - 0.25 * (right[0] == 1)


def flat_gradient(model) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.net.parameters() if weight.grad is not None])


def rows_for(role: str, prompt: tuple[int, ...], models, prompts) -> list[Row]:
    """One row a joint reply: its probability as weight, its reward as advantage (MAREINFORCE's expectation)."""
    rows = []
    with torch.no_grad():
        for joint in itertools.product(RESPONSES, repeat=2):
            chance = math.exp(
                sum(float(loglikelihood(m, p, r)) for m, p, r in zip(models, prompts, joint, strict=True))
            )
            reply = joint["ab".index(role)]
            rows.append(Row(prompt, reply, (-1.0,) * len(reply), joint_reward(*joint), chance, 1.0, role, role))
    return rows


def expected_reward(models, prompts) -> torch.Tensor:
    total = torch.zeros(())
    for joint in itertools.product(RESPONSES, repeat=2):
        likelihood = [loglikelihood(m, p, r) for m, p, r in zip(models, prompts, joint, strict=True)]
        total = total + (likelihood[0] + likelihood[1]).exp() * joint_reward(*joint)
    return total


PROMPTS = ((5, 6, 7), (5, 9))


def trained(models, roles_of) -> list[torch.Tensor]:
    """The learner's gradient of each model, from the rows of the roles it plays."""
    loss = PolicyGradient(denominator="tasks")
    names = [f"p{at}" for at in range(len(roles_of))]
    learner = LocalLearner(policies(dict(zip(names, models, strict=False))), loss, 1)
    for name, roles in zip(names, roles_of, strict=True):
        rows = [row for role in roles for row in rows_for(role, PROMPTS["ab".index(role)], models, PROMPTS)]
        learner.accumulate(name, rows)
    return [flat_gradient(models[at]) for at in range(len(names))]


def test_the_learners_gradient_is_autograds_of_the_enumerated_expected_reward():
    """D1, D2, D4: each token is trained once, the end too, and no padding."""
    models = [three_tokens(0), three_tokens(1)]
    every = torch.stack([loglikelihood(models[0], PROMPTS[0], reply) for reply in RESPONSES]).detach()
    assert float(every.exp().sum()) == pytest.approx(1, abs=1e-5)
    expected_reward(models, PROMPTS).backward()
    wanted = [flat_gradient(model) for model in models]
    for model in models:
        model.net.zero_grad(set_to_none=True)
    for found, exact_ in zip(trained(models, ["a", "b"]), wanted, strict=True):
        assert torch.allclose(-found, exact_, atol=1e-5, rtol=1e-3)


@pytest.mark.slow
def test_roles_of_one_policy_give_the_sum_of_their_gradients():
    """D22: one optimizer, one step, whatever the order of roles."""
    model = three_tokens(3)
    models = [model, model]
    expected_reward(models, PROMPTS).backward()
    wanted = flat_gradient(model)
    for roles in ("ab", "ba"):
        model.net.zero_grad(set_to_none=True)
        (found,) = trained(models, [roles])
        assert torch.allclose(-found, wanted, atol=1e-5, rtol=1e-3)


def test_a_run_that_is_refused_in_its_first_rollout_leaves_nothing_behind(tmp_path):
    save_model(tiny(), tmp_path / "model")
    sets = [f"policies.team.model={tmp_path / 'model'}", "algorithm.name=magrpo", "algorithm.max_nodes=1",
            "train.tasks_per_step=1", "train.eval_tasks=1", "train.mute_every=0"]  # fmt: skip
    with pytest.raises(ConfigError, match=r"algorithm.max_nodes = 1"):
        train(load_config("tests/toys.py:Agree", sets), tmp_path / "run")
    assert not (tmp_path / "run").exists()
