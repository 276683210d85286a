"""One run of a pair of programs: a call with every input, and the values of main's expressions in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie_worlds.sandbox import same
from coterie_worlds.sandbox.duet import Exchange

ENOUGH = 0.25
"""Share of the passed tests that aux has to decide: less is an exception, not how the two work."""
FEWEST = 2
"""Minimum number of tests, and of different results, from which something can be told."""
Site = tuple[Any, Any]
"""The first and the last value of an expression in a test."""


@dataclass(frozen=True, slots=True)
class PairRun:
    """Every input once, with both programs loaded anew.

    Attributes:
        played: a call each.
        seen: values of main's expressions in it, by site.
        replaced: inputs in which every answer of aux was another than in truth.
        counts: number of values of each expression.
    """

    played: list[Exchange]
    seen: list[dict[int, Site]]
    replaced: set[int]
    counts: list[dict[int, int]] = field(default_factory=list)

    def has(self, site: int, there: Iterable[int], wanted: Mapping[int, Site], ends: Sequence[int]) -> bool:
        """Returns True if a site's first value (0), or its last (1), or both are as wanted in all of some inputs."""
        return all(
            site in self.seen[at] and same(wanted[at][end], self.seen[at][site][end]) for at in there for end in ends
        )


def enough(inputs: set[int], among: Iterable[int]) -> bool:
    """Returns True if inputs are more than an exception among others."""
    return len(inputs) >= max(1.0, ENOUGH * len(list(among)))
