"""Confidence intervals of a mean over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

T95 = (
    math.inf, 12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814, 2.20099,
    2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302,
)  # fmt: skip
"""The 97.5 % point of Student's t by degrees of freedom, 0 to 19."""


def over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean over seeds, and its 95 % interval by Student's t.

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
    half = half_width(len(values)) * stdev(values)
    return mean, mean - half, mean + half


def half_width(seeds: int) -> float:
    """Returns half of the 95 % interval of a mean over so many seeds, 2 to 20, in standard deviations."""
    return T95[seeds - 1] / math.sqrt(seeds)
