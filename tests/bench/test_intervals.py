"""Intervals over seeds, and what the pages of results make of them."""

import math

import pytest

from benchmarks.contest import at_budget, spread
from benchmarks.intervals import T95, over_seeds
from benchmarks.rows import interval


# mean 2, deviation 1, t(2) = 4.303: 4.303 / sqrt(3) = 2.484
def test_students_interval_by_hand():
    assert over_seeds([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.484, 4.484), rel=0, abs=1e-3)
    mean, low, high = over_seeds([0.95, 0.95, 0.97, 0.97, 0.96])  # deviation 0.01, t(4) = 2.776: 0.0124
    assert (mean, high - mean) == pytest.approx((0.96, 0.0124), rel=0, abs=1e-4)
    assert mean - low == pytest.approx(high - mean)


def test_the_points_of_students_t_leave_two_and_a_half_percent_above_them():
    """The density integrated by the trapezoid rule from 0 to each point of the table: 0.475."""
    for freedom, point in enumerate(T95[1:], 1):
        scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
        heights = [scale * (1 + (point * at / 4000) ** 2 / freedom) ** (-(freedom + 1) / 2) for at in range(4001)]
        inside = point / 4000 * (sum(heights) - (heights[0] + heights[-1]) / 2)
        assert inside == pytest.approx(0.475, rel=0, abs=5e-5)


def test_one_seed_says_nothing_of_others():
    assert over_seeds([0.5]) == (0.5, -math.inf, math.inf)
    assert interval([0.5]) == "one seed"
    with pytest.raises(ValueError, match="0 seeds"):
        over_seeds([])


def test_intervals_of_shares_end_at_nothing_and_at_all():
    assert interval([0.0, 0.1]).startswith("0.000 to ")
    assert spread([0.9, 1.0]).endswith(" to 1.000)")


def test_success_at_a_budget_lies_on_the_line_between_two_validations():
    assert at_budget([(0.0, 0.0), (4.0, 1.0)], 1.0) == 0.25
    assert at_budget([(0.0, 0.2), (1.0, 0.4), (2.0, 0.8)], 1.5) == pytest.approx(0.6)
    assert at_budget([(0.0, 0.2), (1.0, 0.4)], 9.0) == 0.4
