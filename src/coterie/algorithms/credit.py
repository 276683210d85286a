"""Credit functions: they turn the returns of a group into one advantage per member. They are pure functions of floats.

All of them except `none` are invariant to a shift of all returns, and equal returns give exactly zero
advantages. Otherwise rounding noise, divided by a tiny spread, would look like a signal.
"""

from __future__ import annotations

import math
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
    if _nothing_to_compare(returns):
        return [0.0] * len(returns)
    mean = fmean(returns)
    return [value - mean for value in returns]


def leave_one_out(returns: Sequence[float]) -> list[float]:
    """Computes r minus the mean of the others: G / (G - 1) times `center`, an unbiased baseline.

    Raises:
        GroupError: G < 2.

    Source:
        RLOO, arXiv:2402.14740.
    """
    scale = len(returns) / max(1, len(returns) - 1)
    return [scale * value for value in center(returns)]


def against(returns: Sequence[float], baseline: float) -> list[float]:
    """Computes r minus a baseline that does not depend on the returns, such as the return of the greedy reply.

    Source:
        ReMax, arXiv:2310.10505.
    """
    if flat([*returns, baseline]):
        return [0.0] * len(returns)
    return [value - baseline for value in returns]


def scaled(advantages: Sequence[float], returns: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Divides advantages by (s + eps), s the population deviation of their returns; never centred again.

    Returns:
        exactly 0 where all returns are equal: a tiny spread would be blown up.
    """
    if flat(list(returns)):
        return [0.0] * len(returns)
    spread = pstdev(returns)
    return [advantage / (spread + eps) for advantage in advantages]


def standardize_weighted(returns: Sequence[float], weights: Sequence[float], *, eps: float = 1e-6) -> list[float]:
    """Computes advantages as (r - mean) / (s + eps), with weighted mean and population deviation s.

    Args:
        weights: how often each counts, such as its tokens.

    Returns:
        exactly 0 where all returns are equal.

    Source:
        REINFORCE++, arXiv:2501.03262, which normalises over the tokens of a batch.
    """
    total = math.fsum(weights)
    if flat(list(returns)) or not total:
        return [0.0] * len(returns)
    mean = math.fsum(weight * value for weight, value in zip(weights, returns, strict=True)) / total
    squares = math.fsum(weight * (value - mean) ** 2 for weight, value in zip(weights, returns, strict=True))
    spread = math.sqrt(squares / total)
    return [(value - mean) / (spread + eps) for value in returns]


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


def _nothing_to_compare(returns: Sequence[float]) -> bool:
    if len(returns) < 2:
        raise GroupError(
            f"group of {len(returns)}: a baseline needs 2; raise num_generations, or drop the group and count it"
        )
    return flat(list(returns))


def _scaled(returns: Sequence[float], deviation: Callable[[Sequence[float]], float], eps: float) -> list[float]:
    if _nothing_to_compare(returns):
        return [0.0] * len(returns)
    mean, spread = fmean(returns), deviation(returns)
    return [(value - mean) / (spread + eps) for value in returns]
