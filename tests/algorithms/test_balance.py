"""Balance: the live groups of each case of a role's reward weigh the same together."""

from dataclasses import replace

import pytest

from coterie.algorithms.balance import MOST, balanced
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member


def group(number: int, role: str, *parts: dict[str, float]) -> Group:
    members = tuple(
        Member((Sample(role, "p", 0, (1, 2), (place,), (0.0,), "stop", str(place)),), (sum(part.values()),), part)
        for place, part in enumerate(parts)
    )
    return Group(Key("t", number, "0@0", role), "prompt", members)


def weights(*groups: Group) -> list[float]:
    return [each.weight for each in balanced(groups)]


RIGHT = ({"verdict/right": 1.0}, {"verdict/right": -1.0})
WRONG = ({"verdict/wrong": -1.0}, {"verdict/wrong": 0.0})
DEAD = ({"verdict/wrong": 0.0}, {"verdict/wrong": 0.0})


def test_a_rare_case_weighs_as_much_as_a_common_one():
    """Four live groups, two cases: one right weighs 4 / (2 x 1), three wrong 4 / (2 x 3) each, 2 on both sides."""
    found = weights(group(0, "c", *RIGHT), *(group(number, "c", *WRONG) for number in (1, 2, 3)), group(4, "c", *DEAD))
    assert found == pytest.approx([2.0, 2 / 3, 2 / 3, 2 / 3, 1.0])


def test_one_case_alone_and_rewards_without_cases_keep_their_weights():
    team = ({"team/exact": 1.0, "format": 0.0}, {"team/exact": 0.0, "format": 1.0})
    assert weights(group(0, "c", *WRONG), group(1, "c", *WRONG), group(2, "s", *team)) == [1.0, 1.0, 1.0]


def test_roles_are_balanced_each_by_itself():
    found = weights(group(0, "c", *RIGHT), group(1, "d", *WRONG), group(2, "d", *WRONG), group(3, "d", *RIGHT))
    assert found == pytest.approx([1.0, 0.75, 0.75, 1.5])


def test_a_weight_has_a_bound():
    many = [group(number, "c", *WRONG) for number in range(1, 40)]
    assert weights(group(0, "c", *RIGHT), *many)[0] == MOST  # 40 / (2 x 1) is more


def test_weights_that_groups_have_are_kept_as_factors():
    first = replace(group(0, "c", *RIGHT), weight=0.5)
    assert weights(first, *(group(number, "c", *WRONG) for number in (1, 2, 3)))[0] == pytest.approx(1.0)
