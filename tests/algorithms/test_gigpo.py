"""GiGPO by hand, and what it degenerates to."""

from __future__ import annotations

import itertools

import pytest

from coterie import load_config
from coterie.algorithms.gigpo import GiGPO
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.errors import ConfigError
from coterie.kernel.episode import Asked, Rewarded
from coterie.kernel.team import route
from coterie.sampling.to_go import to_go
from tests.toys import TEAM, Sequential, Toy, one, scripted

CENTRED = GiGPO(num_generations=2, advantage="center")


class Fork(Toy):
    """One role: from A to where it says, and there once more; who went to B wins."""

    roles = ("a",)

    async def play(self, task, scene):
        where = (await scene.ask("a", "A")).text
        await scene.ask("a", where)
        scene.team_reward(float(where == "B"))


def test_the_golden_numbers():
    """A is met twice: .95 and 0 to go, so +-.475, beside +-.5 of the episodes. B and C are met once."""
    replies = iter(["B", "C", "x", "y"])
    play = scripted(Fork(), lambda role, prompt, rng: next(replies))
    found = one(play, CENTRED.collect(play, Fork().task("train", 0)))
    earned, _ = CENTRED.credit(found.groups, {})
    routed = route(TEAM, found.groups, earned)
    credit = {one.sample.text: one.advantage * one.weight for one in routed["pa"]}
    assert credit == pytest.approx({"B": 0.975, "C": -0.975, "x": 0.5, "y": -0.5})
    assert len(routed["pa"]) == 4, "one row a sample"
    assert {one.group for one in routed["pa"]} == {"train-0/0/*/team"}


def test_where_no_prompt_is_met_twice_it_is_mas_grpo():
    class Apart(Sequential):
        async def play(self, task, scene):
            for role in ("a", "b"):
                reply = await scene.ask(role, f"{role} {scene.rng.random()}")
                scene.reward(role, float(reply.text))

    found = {}
    for algorithm in (GiGPO(num_generations=4), MASGRPO(num_generations=4)):
        play = scripted(Apart())
        collected = one(play, algorithm.collect(play, Apart().task("train", 0)))
        found[type(algorithm)] = (collected.groups, algorithm.credit(collected.groups, {})[0])
    assert found[GiGPO] == found[MASGRPO]


def test_a_prompt_met_twice_in_an_episode_is_two_members_of_its_role_alone():
    class Again(Sequential):
        async def play(self, task, scene):
            for _ in range(2):
                for role in ("a", "b"):
                    scene.reward(role, float((await scene.ask(role, "the same")).text))

    play = scripted(Again())
    found = one(play, CENTRED.collect(play, Again().task("train", 0)))
    assert [(group.key.path, group.key.role, len(group.members)) for group in found.groups] == [
        ("*", "team", 4 // 2), ("state 0", "a", 4), ("state 1", "b", 4),
    ]  # fmt: skip


def test_what_is_to_go_by_hand():
    """a decides at 0 and 2. The team's 1 after b's point belongs to a's first decision; b's own reward to none."""
    asked = [Asked({role: "x"}, None, ()) for role in ("a", "b", "a")]
    events = [
        asked[0], Rewarded("a", 0, 2.0, "r"), asked[1], Rewarded("b", 1, 9.0, "r"), Rewarded(None, None, 1.0, "r"),
        asked[2], Rewarded("a", 2, 4.0, "r"), Rewarded(None, None, 6.0, "r"),
    ]  # fmt: skip
    assert to_go(events, [(0, "a"), (2, "a")], 0.5, 0.9) == pytest.approx([2 + 0.5 + 0.9 * (4 + 3), 7.0])
    assert to_go(events, [(1, "b")], 1.0, 0.9) == pytest.approx([9 + 1 + 6])


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_weight_of_steps_is_their_groups(weight):
    replies = iter(["B", "C", "x", "y"])
    play = scripted(Fork(), lambda role, prompt, rng: next(replies))
    algorithm = GiGPO(num_generations=2, advantage="center", step_weight=weight)
    found = one(play, algorithm.collect(play, Fork().task("train", 0)))
    earned, _ = algorithm.credit(found.groups, {})
    routed = route(TEAM, found.groups, earned)["pa"]
    assert next(one.advantage for one in routed if one.sample.text == "B") == pytest.approx(0.5 + weight * 0.475)


class Chain(Toy):
    """b says where a begins, A or C; from there a goes to B and to D, where it says what the team wins."""

    async def play(self, task, scene):
        begin = (await scene.ask("b", "where")).text
        for place in (begin, "B"):
            await scene.ask("a", place)
        scene.team_reward(float((await scene.ask("a", "D")).text))


def chained(**settings):
    """The advantages of a at B and at D, of the episodes ABD, ABD, CBD that return 1, 0, 0."""
    begins, wins, steps = iter("AAC"), iter("100"), itertools.count()
    said = {"where": lambda: next(begins), "D": lambda: next(wins)}
    algorithm = GiGPO(num_generations=3, advantage="center", discount=1.0, episode_weight=0.0, **settings)
    play = scripted(Chain(), lambda role, prompt, rng: said.get(prompt, lambda: str(next(steps)))())
    found = one(play, algorithm.collect(play, Chain().task("train", 0)))
    earned, _ = algorithm.credit(found.groups, {})
    graded = route(TEAM, found.groups, earned)["pa"]
    assert len(graded) == 9, "one row a sample"
    return [one.advantage * one.weight for one in graded]


def test_hgpo_by_hand():
    """Samples in order: A B D of each episode. D: ⅔, ⅔, ½ of groups of 3, 3 and 2 replies, weights 2, 3, 4; B: ⅔, ½."""
    earned = chained(history=2)
    assert earned[2::3] == pytest.approx([0.5926, -0.4074, -1 / 3], abs=1e-4)
    assert earned[1::3] == pytest.approx([0.5667, -0.4333, -1 / 3], abs=1e-4)
    assert earned[0::3] == pytest.approx([0.5, -0.5, 0.0]), "C was met once and is compared with nothing"


def test_hgpo_with_equal_weights_is_the_mean_of_its_groups():
    assert chained(history=2, history_power=0.0)[2] == pytest.approx((2 / 3 + 2 / 3 + 1 / 2) / 3)


def test_replies_of_one_moment_are_not_each_others_history():
    class Siblings(Toy):
        async def play(self, task, scene):
            for _ in range(2):
                for reply in await scene.ask_all([("a", "same")] * 2):
                    scene.reward(reply, 1.0)

    play = scripted(Siblings())
    algorithm = GiGPO(num_generations=2, history=2, episode_weight=0.0)
    found = one(play, algorithm.collect(play, Siblings().task("train", 0)))
    sizes = {group.key.path: len(group.members) for group in found.groups if group.scope == "prompt"}
    assert sizes["state 0"] == 8, "every reply"
    assert sorted(sizes.values()) == [4, 8], "each of the second moment has one prompt before"


def test_the_teams_rewards_have_their_weight_in_states_too():
    class Won(Toy):
        async def play(self, task, scene):
            scene.reward("a", float((await scene.ask("a", "same")).text))
            scene.team_reward(1.0)

    play = scripted(Won(), lambda role, prompt, rng: "2")
    algorithm = GiGPO(num_generations=2, team_weight=0.5)
    found = one(play, algorithm.collect(play, Won().task("train", 0)))
    assert [group.values for group in found.groups] == [(2.5, 2.5), (2.5, 2.5)]


def test_without_a_history_only_the_prompt_counts():
    assert chained()[2::3] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_the_power_has_no_effect_without_a_history():
    with pytest.raises(ConfigError, match="history_power has no effect: history = 0"):
        load_config("plan_path", ["algorithm.name=gigpo", "algorithm.history_power=2"])
