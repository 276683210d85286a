"""Confidence intervals of a mean over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

T95 = (
    math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
"""The 97.5 % point of Student's t by degrees of freedom, 0 to 19."""


def over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean over seeds, and its 95 % interval by Student's t.

    Args:
        values: one a seed, 1 to 20 of them, any unit.

    Returns:
        mean, low, high in that unit; an infinite interval for one seed, which says nothing of others.

    Raises:
        ValueError: none, or more than the table has.
    """
    if not 1 <= len(values) <= len(T95):
        raise ValueError(f"{len(values)} seeds: the table has 1 to {len(T95)}")
    mean = fmean(values)
    if len(values) == 1:
        return mean, -math.inf, math.inf
    half = T95[len(values) - 1] * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half
