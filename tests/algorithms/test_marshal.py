"""MARSHAL's idea by hand, and the defect of the published code that it does not have."""

from __future__ import annotations

import pytest

from coterie.algorithms.marshal import Marshal
from coterie.algorithms.reinforce_pp import ReinforcePP
from tests.algorithms.made import group
from tests.toys import Sequential, Toy, one, scripted


class Game(Toy):
    """a speaks as often as its first word says; b says what a loses by it in the end."""

    async def play(self, task, scene):
        for turn in range(int((await scene.ask("a", "how long")).text) - 1):
            await scene.ask("a", f"turn {turn}")
        scene.reward("a", -float((await scene.ask("b", "end")).text))


def played(lengths, losses, **settings):
    """What a's replies earned, an episode a list, before they are normalised and after."""
    long, lost = iter(lengths), iter(losses)
    said = {"how long": lambda: next(long), "end": lambda: next(lost)}
    algorithm = Marshal(num_generations=len(lengths), **settings)
    play = scripted(Game(), lambda role, prompt, rng: said.get(prompt, lambda: "on")())
    groups = one(play, algorithm.collect(play, Game().task("train", 0))).groups
    earned, state = algorithm.credit(groups, {})
    assert state == {}
    mine = next(at for at, each in enumerate(groups) if each.key.role == "a")
    told = {}
    for member, advantage in zip(groups[mine].members, earned[mine], strict=True):
        told.setdefault(member.episode, []).append((member.value, advantage))
    return list(told.values())


def test_the_golden_numbers():
    """Returns -1 and 0, one turn each: mean -0.5, deviation 0.5. b has its own mean: it earned nothing."""
    assert played("11", "10") == [[(-1.0, pytest.approx(-1, abs=1e-5))], [(0.0, pytest.approx(1, abs=1e-5))]]


def test_a_longer_game_does_not_pay():
    """Two games are lost alike, one in one turn and one in three. Every reply has lost 1, and none is better.

    The published code subtracts the mean of turns, -0.5, from each turn's reward and then sums: the longer game's first
    turn would have 0.5 + 0.5 - 0.5 = 0.5 and the shorter's -0.5.
    """
    (short,), long = played("13", "11")
    assert short == (-1.0, 0.0)
    assert long == [(-1.0, 0.0)] * 3


def test_what_is_lost_later_counts_less_with_a_discount():
    """a's loss of 1 is a reward of its last reply: of three replies the first sees it discounted twice."""
    (lost,) = played("3", "1", discount=0.5)
    assert [value for value, _ in lost] == [-0.25, -0.5, -1.0]


def test_a_reply_is_not_credited_with_what_came_before_it():
    play = scripted(Sequential())
    groups = one(play, Marshal().collect(play, Sequential().task("train", 0))).groups
    for each in groups:
        first, second = each.members
        assert first.value > second.value, "the second turn's rewards are in both, the first's in one"


def test_with_one_reply_an_episode_it_is_reinforce_pp_on_replies_of_one_length():
    groups = [group(1.0, 3.0, task="0"), group(0.5, task="1"), group(7.0, 9.0, task="1", role="b")]
    assert Marshal().credit(groups, {}) == ReinforcePP().credit(groups, {})
