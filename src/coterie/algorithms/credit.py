"""Credit functions: they turn the returns of a group into one advantage per member. They are pure functions of floats.

All of them except `none` are invariant to a shift of all returns, and equal returns give exactly zero
advantages. Otherwise rounding noise, divided by a tiny spread, would look like a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev, stdev
from typing import Literal

from coterie.errors import GroupError
from coterie.kernel.group import flat

Credit = Literal["standardize", "standardize_population", "center", "leave_one_out", "none"]


def standardize(returns: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Computes advantages as centred and scaled returns: (r - mean) / (s + eps), s the sample deviation.

    Args:
        returns: one a member, G >= 2, any unit.
        eps: added to the deviation, same unit.

    Returns:
        G advantages without unit, mean 0; exactly 0 where all returns are equal.

    Raises:
        GroupError: G < 2.

    Source:
        GRPO, arXiv:2402.03300 sec. 4.1.2. The paper leaves the deviation open; this divides by G - 1, as AT-GRPO's
        published code does.
    """
    return _scaled(returns, stdev, eps)


def standardize_population(returns: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Computes `standardize` with the population deviation (divided by G): larger by sqrt(G / (G - 1))."""
    return _scaled(returns, pstdev, eps)


def center(returns: Sequence[float]) -> list[float]:
    """Computes advantages as r - mean, in the unit of the returns.

    Raises:
        GroupError: G < 2.

    Source:
        Dr.GRPO, arXiv:2503.20783: without the scale, easy and hard groups count alike.
    """
    if len(returns) < 2:
        raise GroupError(
            f"group of {len(returns)}: a baseline needs 2; raise num_generations, or drop the group and count it"
        )
    mean = fmean(returns)
    return [0.0] * len(returns) if flat(list(returns)) else [value - mean for value in returns]


def leave_one_out(returns: Sequence[float]) -> list[float]:
    """Computes r minus the mean of the others: G / (G - 1) times `center`, an unbiased baseline.

    Raises:
        GroupError: G < 2.

    Source:
        RLOO, arXiv:2402.14740.
    """
    scale = len(returns) / max(1, len(returns) - 1)
    return [scale * value for value in center(returns)]


def none(returns: Sequence[float]) -> list[float]:
    """Takes the returns themselves as advantages, without a baseline (REINFORCE)."""
    return list(returns)


CREDIT: dict[Credit, Callable[[Sequence[float]], list[float]]] = {
    "standardize": standardize,
    "standardize_population": standardize_population,
    "center": center,
    "leave_one_out": leave_one_out,
    "none": none,
}


def _scaled(returns: Sequence[float], deviation: Callable[[Sequence[float]], float], eps: float) -> list[float]:
    centered = center(returns)
    spread = deviation(returns)
    return [value / (spread + eps) for value in centered]
