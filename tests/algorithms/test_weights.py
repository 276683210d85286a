"""Methods that weigh the replies of an episode: M-GRPO's by calls, WideSeek-R1's by roles and tokens."""

from __future__ import annotations

import pytest

from coterie.algorithms.drmas import DrMAS
from coterie.algorithms.main_sub_grpo import MainSubGRPO
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.algorithms.wideseek import WideSeek
from tests.algorithms.made import replies
from tests.toys import Sequential, Toy, one, scripted

HALF = 0.5**0.5
"""What two returns, 1 and 0, are standardised to: 0.5 by a deviation of 0.7071."""


def test_calls_of_an_episode_count_once_together():
    """R 1 with three calls and R 0 with one: the mean is 0.5 and not 0.75, and the three share the advantage."""
    group = replies((0, "a", 1, 5), (0, "a", 1, 5), (0, "a", 1, 9), (1, "a", 0, 5))
    assert MainSubGRPO(advantage="center").advantages(group) == pytest.approx((1 / 6, 1 / 6, 1 / 6, -0.5))
    assert MainSubGRPO().advantages(group) == pytest.approx((HALF / 3, HALF / 3, HALF / 3, -HALF), abs=1e-5)


@pytest.mark.parametrize("algorithm", [MainSubGRPO(), WideSeek()])
def test_an_episode_alone_is_compared_with_nothing(algorithm):
    assert algorithm.advantages(replies((0, "a", 1, 5), (0, "a", 1, 5))) == (0.0, 0.0)


def test_roles_of_an_episode_have_equal_shares_and_turns_share_by_tokens():
    """Lead turns of 10 and 30 tokens and a sub of 100: 1/8, 3/8 and 1/2 of the advantage."""
    group = replies((0, "lead", 1, 10), (0, "lead", 1, 30), (0, "sub", 1, 100), (1, "lead", 0, 7))
    assert WideSeek().advantages(group) == pytest.approx((HALF / 8, HALF * 3 / 8, HALF / 2, -HALF), abs=1e-5)


def test_where_every_role_speaks_once_the_weights_change_nothing():
    """Each role's advantages are those of drmas, and the team's are those of mas_grpo divided by the roles."""
    environment = Sequential(max_turns=1)
    found = {}
    for algorithm in (MainSubGRPO(), DrMAS(), WideSeek(), MASGRPO()):
        play = scripted(environment)
        groups = one(play, algorithm.collect(play, environment.task("train", 0))).groups
        samples = [
            (member.samples[0].role, member.samples[0].text, earned)
            for group, credit in zip(groups, algorithm.credit(groups, {})[0], strict=True)
            for member, earned in zip(group.members, credit, strict=True)
        ]
        found[type(algorithm)] = sorted(samples)
    assert found[MainSubGRPO] == found[DrMAS]
    whole = [earned for _, _, earned in found[MASGRPO]]
    halves = [2 * earned for role, _, earned in found[WideSeek] if role == "a"]
    assert sorted(halves) == pytest.approx(sorted(whole))


@pytest.mark.parametrize(("own", "wanted"), [(True, {"a": 2.0, "b": 3.0}), (False, {"a": 4.0, "b": 4.0})])
def test_of_local_rewards_a_role_has_its_own_or_those_of_all(own, wanted):
    class Paid(Toy):
        async def play(self, task, scene):
            for role, worth in (("a", 1.0), ("b", 2.0)):
                await scene.ask(role, "go")
                scene.reward(role, worth)
            scene.team_reward(1.0)

    algorithm = MainSubGRPO(num_generations=2, own=own)
    play = scripted(Paid())
    groups = one(play, algorithm.collect(play, Paid().task("train", 0))).groups
    assert {group.key.role: group.values[0] for group in groups} == wanted


class Varies(Toy):
    """a calls b as often as it says."""

    async def play(self, task, scene):
        for _ in range(int((await scene.ask("a", "how often")).text)):
            await scene.ask("b", "go")
        scene.team_reward(1.0)


def test_a_role_that_was_not_called_is_in_no_group():
    counts = iter("300")
    play = scripted(Varies(), lambda role, prompt, rng: next(counts) if role == "a" else "x")
    algorithm = MainSubGRPO(num_generations=3)
    found = one(play, algorithm.collect(play, Varies().task("train", 0)))
    assert [(group.key.role, [member.episode for member in group.members]) for group in found.groups] == [
        ("a", [0, 1, 2]), ("b", [0, 0, 0]),
    ]  # fmt: skip
    assert algorithm.advantages(found.groups[1]) == (0.0, 0.0, 0.0), "one episode alone called it"
