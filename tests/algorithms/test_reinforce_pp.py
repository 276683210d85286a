"""REINFORCE++ by hand, and what it degenerates to."""

from __future__ import annotations

import pytest

from coterie.algorithms.credit import standardize_population
from coterie.algorithms.reinforce_pp import ReinforcePP
from tests.algorithms.made import group
from tests.toys import Sequential, one, scripted


def test_the_golden_numbers():
    """1 on 10 tokens and 0 on 30: mean 1/4, variance (10 x 9/16 + 30 x 1/16) / 40 = 3/16."""
    earned, state = ReinforcePP().credit([group(1.0, task="0", tokens=10), group(0.0, task="1", tokens=30)], {})
    assert earned == [(pytest.approx(3**0.5, abs=1e-5),), (pytest.approx(-(3**-0.5), abs=1e-5),)]
    assert state == {}


def test_a_role_is_standardised_by_itself():
    groups = [
        group(1.0, task="0"),
        group(100.0, task="0", role="b"),
        group(0.0, task="1"),
        group(300.0, task="1", role="b"),
    ]
    earned, _ = ReinforcePP().credit(groups, {})
    assert [round(credit, 4) for (credit,) in earned] == [1.0, -1.0, -1.0, 1.0]


def test_with_replies_of_one_length_it_is_the_population_standardisation_of_the_step():
    values = [0.0, 1.0, 1.0, 4.0]
    earned, _ = ReinforcePP().credit([group(*values[:2], task="0"), group(*values[2:], task="1")], {})
    assert [*earned[0], *earned[1]] == pytest.approx(standardize_population(values))


def test_a_step_of_equal_returns_teaches_nothing():
    earned, _ = ReinforcePP().credit([group(0.3, task="0", tokens=3), group(0.3, task="1")], {})
    assert earned == [(0.0,), (0.0,)]


def test_one_episode_a_task_is_enough():
    environment = Sequential()
    play = scripted(environment)
    found = one(play, ReinforcePP().collect(play, environment.task("train", 0)))
    assert [(group.key.role, len(group.members)) for group in found.groups] == [("a", 1), ("b", 1)]
    assert not play.budget.dropped
