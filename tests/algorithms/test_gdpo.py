"""GDPO by hand: each reward by itself, then their sum, then the step."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from statistics import pstdev

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.gdpo import GDPO
from coterie.errors import ConfigError
from coterie.kernel.group import Member
from tests.algorithms.made import group
from tests.toys import TEAM, Agree, one, scripted


def parts(*told: dict[str, float], role: str = "a"):
    """A group whose members have these rewards."""
    made = group(*(sum(own.values()) for own in told), role=role)
    members = tuple(replace(member, parts=own) for member, own in zip(made.members, told, strict=True))
    return replace(made, members=members)


FOUR = [{"team/solved": solved, "form": form} for solved in (1.0, 0.0) for form in (10.0, 0.0)]


def test_the_golden_numbers():
    """Each reward is +-sqrt(3)/2 by itself, whatever its size: sums sqrt(3), 0, 0, -sqrt(3), of deviation sqrt(3/2)."""
    (earned,), _ = GDPO().credit([parts(*FOUR)], {})
    assert earned == pytest.approx([sqrt(2), 0, 0, -sqrt(2)], abs=1e-5)
    added = ATGRPO().advantages(parts(*FOUR))
    spread = sqrt(101 / 3)  # of 11, 1, 10, 0: the larger reward decides
    assert added == pytest.approx([5.5 / spread, -4.5 / spread, 4.5 / spread, -5.5 / spread])


def test_weights_apply_after_each_is_standardised_and_none_is_zero():
    doubled = GDPO(team_weight=2.0).advantages(parts(*({**own, "team/solved": 2 * own["team/solved"]} for own in FOUR)))
    assert doubled == pytest.approx([1.5 * sqrt(3), 0.5 * sqrt(3), -0.5 * sqrt(3), -1.5 * sqrt(3)], abs=1e-4)
    alone = GDPO(team_weight=0.0).advantages(parts(*({"team/solved": 0.0, "form": own["form"]} for own in FOUR)))
    assert alone == pytest.approx(ATGRPO().advantages(parts(*({"form": own["form"]} for own in FOUR))))


def test_a_reward_that_a_reply_did_not_get_counts_as_zero():
    missing = [{name: value for name, value in own.items() if value} for own in FOUR]
    assert GDPO().advantages(parts(*missing)) == GDPO().advantages(parts(*FOUR))


def test_replies_of_equal_sums_and_different_rewards_differ():
    """Deviations 0.577, 0.5 and 0.5: the rarer of three rewards counts for more."""
    told = [{"x": 1.0}, {"x": 1.0}, {"y": 1.0}, {"z": 1.0}]
    left = 1 - sqrt(3) / 2
    assert GDPO().advantages(parts(*told)) == pytest.approx([-left, -left, left, left], abs=1e-4)
    assert not any(ATGRPO().advantages(parts(*told)))


def test_a_step_is_scaled_for_each_policy_and_nothing_stays_nothing():
    groups = [parts({"x": 1.0}, {"x": 0.0}), parts({"x": 0.0}, {"x": 0.0}), parts({"x": 3.0}, {"x": 1.0}, role="b")]
    earned, state = GDPO().credit(groups, {"kept": 1})
    assert pstdev([*earned[0], *earned[1]]) == pytest.approx(1, abs=1e-4)
    assert pstdev(earned[2]) == pytest.approx(1, abs=1e-4)
    assert (earned[1], state) == ((0.0, 0.0), {"kept": 1})
    assert GDPO().credit([groups[1]], {})[0] == [(0.0, 0.0)]


def test_what_does_not_standardise_is_refused():
    GDPO(advantage="standardize_population").check(Agree(), TEAM)
    with pytest.raises(ConfigError, match="advantage = 'center'"):
        GDPO(advantage="center").check(Agree(), TEAM)


def test_it_has_at_grpos_groups():
    def collected(algorithm):
        play = scripted(Agree())
        return one(play, algorithm.collect(play, Agree().task("train", 0)))

    found = collected(GDPO(num_generations=4))
    assert found == collected(ATGRPO(num_generations=4))
    assert all(isinstance(member, Member) and member.parts for group in found.groups for member in group.members)
    assert {group.policy for group in found.groups} == {*TEAM.trained}
