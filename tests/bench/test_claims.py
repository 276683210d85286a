"""Verdicts on claims: what is sure, and what is not."""

from __future__ import annotations

import pytest

from coterie.bench.claims import Versus


@pytest.mark.parametrize(
    ("more", "less", "verdict"),
    [
        ((0.9, 0.91, 0.92), (0.5, 0.5, 0.5), "holds"),
        ((0.5, 0.5, 0.5), (0.9, 0.91, 0.92), "does not hold"),
        ((0.9, 0.5, 0.7), (0.7, 0.7, 0.6), "not decided"),
        ((0.9,), (0.1,), "not decided"),
    ],
)
def test_a_claim_holds_if_its_interval_is_above_zero(more, less, verdict):
    assert Versus.between(more, less).verdict == verdict


# differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t(2) = 4.303: 0.248
def test_the_interval_by_hand():
    found = Versus.between((0.5, 0.6, 0.7), (0.4, 0.4, 0.4))
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, -0.0484, 0.4484), abs=1e-3)
    assert str(found) == "+20.0 [-4.8, +44.8]"
    with pytest.raises(ValueError, match="zip"):
        Versus.between((0.5,), (0.4, 0.4))
