import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.algorithms.credit import CREDIT, standardize
from coterie.algorithms.magrpo import scaled
from coterie.errors import GroupError
from coterie.kernel.group import flat

BASELINES = [name for name in CREDIT if name != "none"]
returns = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=16)


# mean 1, deviation sqrt 2; 1 / (1.414214 + .5)
def test_eps_is_added_to_the_deviation():
    assert standardize([2.0, 0.0], eps=0.5) == pytest.approx([0.522408, -0.522408], rel=0, abs=1e-6)


def test_flat_is_a_spread_of_a_millionth_of_the_largest_or_of_one():
    assert flat([0.0, 1e-6])
    assert not flat([0.0, 1.5e-6])
    assert flat([10.0, 10.0 + 9e-6])
    assert not flat([10.0, 10.0 + 11e-6])


@pytest.mark.parametrize("name", BASELINES)
def test_a_lone_sample_has_no_baseline(name):
    with pytest.raises(GroupError, match="needs 2"):
        CREDIT[name]([1.0])


@pytest.mark.parametrize("name", BASELINES)
def test_rounding_noise_is_not_a_signal(name):
    assert CREDIT[name]([1.0, 1.0 + 1e-7]) == [0.0, 0.0]
    assert CREDIT[name]([1000.0, 1000.0005]) == [0.0, 0.0]
    assert CREDIT[name]([1.0, 1.01]) != [0.0, 0.0]


@pytest.mark.parametrize("name", BASELINES)
@given(values=returns, shift=st.floats(-50, 50))
def test_shifting_every_return_changes_nothing(name, values, shift):
    moved = [value + shift for value in values]
    if (max(values) - min(values)) > 1e-2:
        assert CREDIT[name](moved) == pytest.approx(CREDIT[name](values), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", BASELINES)
@given(value=st.floats(-1e6, 1e6), size=st.integers(2, 9))
def test_equal_returns_give_exactly_zero(name, value, size):
    assert CREDIT[name]([value] * size) == [0.0] * size


@pytest.mark.parametrize("name", list(CREDIT))
@given(data=st.data(), values=returns)
def test_permuting_members_permutes_advantages(name, data, values):
    order = data.draw(st.permutations(range(len(values))))
    credited = CREDIT[name](values)
    assert CREDIT[name]([values[at] for at in order]) == pytest.approx(
        [credited[at] for at in order], rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("name", BASELINES)
@given(values=returns)
def test_advantages_of_a_group_sum_to_zero(name, values):
    credited = CREDIT[name](values)
    assert math.fsum(credited) == pytest.approx(0, rel=0, abs=1e-6 * (1 + max(map(abs, values))) * len(values))


# returns 0 and 2: mean 1, population deviation 1; with eps 1 halves of the advantages
def test_scaled_by_hand():
    assert scaled([3.0, -1.0], [0.0, 2.0], eps=1.0) == [1.5, -0.5]
    assert scaled([3.0, -1.0], [2.0, 2.0]) == [0.0, 0.0]
