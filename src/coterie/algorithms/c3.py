"""C3: contextual counterfactual credit, a leave-one-out baseline at every decision (arXiv:2603.06859)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from coterie.algorithms.credit import Credit
from coterie.algorithms.node_wise import NodeWise


class C3(NodeWise):
    """Node-wise Monte Carlo with leave-one-out credit: no selection, no memory, no deviation.

    The paper's: alternatives at a frozen context, continued by the team as it is, against the mean of
    the others. Ours: nodes lie on a base episode (its code grows a tree with a fan-out for each role), and
    no critic (its published command line blends one in by default; its text does not).
    """

    continuations: int = Field(default=2, ge=1)
    """Number of times that each alternative is played to the end."""
    advantage: Credit = "leave_one_out"
    """Function that turns the returns of a group into advantages."""

    loss: ClassVar[Mapping[str, Any]] = {"name": "clip", "denominator": "tasks"}
    """A reply's tokens are summed: no length or turn weighs more than another."""
