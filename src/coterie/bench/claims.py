"""A published claim beside our numbers: differences between two rows of a table, with intervals and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coterie.bench.intervals import over_seeds

Verdict = Literal["holds", "does not hold", "not decided"]


@dataclass(frozen=True, slots=True)
class Versus:
    """What one row achieves more than another: mean over pairs of seeds and its 95 % interval, shares of success."""

    mean: float
    low: float
    high: float

    @classmethod
    def between(cls, more: Sequence[float], less: Sequence[float]) -> Versus:
        """Of two rows with as many seeds, each seed beside the one of the same number.

        Runs of different rows are independent, so which seeds are paired does not matter.
        """
        return cls(*over_seeds([one - other for one, other in zip(more, less, strict=True)]))

    @property
    def verdict(self) -> Verdict:
        """Whether the first row is better: surely, surely not, or neither."""
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "not decided"

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"
