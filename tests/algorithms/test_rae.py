"""RAE by hand, what it degenerates to, and its baselines in a checkpoint."""

from __future__ import annotations

import pytest

from coterie.algorithms.rae import RAE
from coterie.kernel.team import route, teaches
from tests.algorithms.made import group
from tests.toys import TEAM, Sequential, one, scripted


def test_the_golden_numbers():
    """b: 0, .05, .0975; A = R - b."""
    earned, state = RAE().credit([group(1.0, task="0"), group(1.0, task="1"), group(-1.0, task="2")], {})
    assert [credit for (credit,) in earned] == pytest.approx([1.0, 0.95, -1.0975])
    assert state == pytest.approx({"a": 0.042625})


def test_roles_of_a_zero_sum_game_mirror_each_other():
    wins = [1.0, 1.0, -1.0, 1.0]
    groups = [
        group(sign * win, task=str(at), role=role)
        for at, win in enumerate(wins)
        for role, sign in (("a", 1), ("b", -1))
    ]
    earned, state = RAE().credit(groups, {})
    assert [credit for (credit,) in earned[::2]] == pytest.approx([-credit for (credit,) in earned[1::2]])
    assert state["a"] == pytest.approx(-state["b"])


def test_the_order_of_groups_is_their_keys_and_state_is_not_changed():
    groups = [group(float(at), task=str(at)) for at in range(5)]
    before = {"a": 0.5}
    earned, state = RAE().credit(groups, before)
    again, other = RAE().credit(groups[::-1], before)
    assert (again[::-1], other) == (earned, state)
    assert before == {"a": 0.5}


def test_without_decay_an_episode_is_judged_by_the_one_before():
    earned, state = RAE(decay=0.0).credit([group(3.0, task="0"), group(5.0, task="1")], {"a": 1.0})
    assert ([*earned], state) == ([(2.0,), (2.0,)], {"a": 5.0})


def test_one_episode_a_task_teaches_each_role_its_own():
    environment = Sequential(max_turns=2)
    play = scripted(environment)
    found = one(play, RAE().collect(play, environment.task("train", 0)))
    assert [group.key for group in found.groups] == [("train-0", 0, "*", "a"), ("train-0", 0, "*", "b")]
    rewards = found.logs[0].rewards()
    for only in found.groups:
        assert len(only.members) == 1
        assert only.values == (pytest.approx(rewards[only.key.role] + rewards["team"]),)
    earned, _ = RAE().credit(found.groups, {})
    assert all(teaches(group, credit) for group, credit in zip(found.groups, earned, strict=True))
    routed = route(TEAM, found.groups, earned)
    assert {one.advantage for one in routed["pa"]} == {found.groups[0].values[0]}
    assert not play.budget.dropped


# 1 - 0; then b = 0.05: 1 - 0.05 = 0.95; then b = 0.95 x 0.05 + 0.05 = 0.0975: -1 - 0.0975; then 0.95 x 0.0975 - 0.05
def test_the_baseline_moves_after_every_episode_not_once_a_group():
    earned, state = RAE().credit([group(1.0, 1.0, -1.0)], {})
    assert earned[0] == pytest.approx((1.0, 0.95, -1.0975))
    assert state == pytest.approx({"a": 0.042625})
