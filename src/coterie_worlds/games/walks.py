"""Base class of games whose answers are walks through a grid: the answer format, and the planner's view."""

from __future__ import annotations

from typing import Literal

from coterie_worlds.games.game import Game

EXAMPLE = "go x30 x31 y31"
"""Example of an answer: no grid has so many rows."""


class Walk(Game):
    """A game in which an answer names cells."""

    max_moves: int
    view: Literal["split", "full"] = "split"
    """split: only the proposer sees the whole grid. full: both roles see it, as published."""

    def inert(self) -> dict[str, str]:
        """Returns `view` as without effect on a planner that is alone."""
        return super().inert() | ({"view": "solo = true always shows the whole grid"} if self.solo else {})

    def form(self) -> str:
        """Returns the form of an answer, a line of cells; those of the example lie outside every grid."""
        return (
            "one line: `go` and the cells to walk through in order, without the one where you are, at most "
            f"{self.max_moves}; such as, in another grid, `{EXAMPLE}`"
        )

    def sight(self) -> str:
        """Returns a sentence for the planner of the split view, which sees little; nothing in the full view."""
        return "" if self.view == "full" else "You see only the cells around you; who proposes sees the whole grid. "
