"""Estimates of the steps that a run will make, and of the time that they still take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from coterie.kernel.tracker import Line

RECENT = 20
"""Number of latest steps from which the pace is estimated."""


def steps_of(lines: Sequence[Line], train: Mapping[str, Any]) -> int:
    """Returns the steps that a run will have made: `train.steps`, or fewer where its token budget ends it.

    Args:
        lines: of metrics.jsonl so far.
        train: the table of its config.

    Returns:
        an estimate from the tokens of the latest steps, if there is a budget and it is not yet spent.
    """
    steps, budget = int(train["steps"]), train.get("max_sampled_tokens")
    spent = [(int(line["step"]), line["budget/sampled_tokens"]) for line in lines if "budget/sampled_tokens" in line]
    if budget is None or not spent:
        return steps
    (step, tokens), (first, earlier) = spent[-1], (spent[-RECENT - 1] if len(spent) > RECENT else (0, 0.0))
    pace = (tokens - earlier) / max(1, step - first)
    left = max(0.0, budget - tokens)
    return min(steps, step + (math.ceil(left / pace) if pace else steps))


def time_left(lines: Sequence[Line], steps: int, every: int) -> float:
    """Returns the seconds that a run still takes: steps at the latest median pace, and validations that are due.

    Args:
        lines: of metrics.jsonl so far.
        steps: of the run.
        every: steps between validations.

    Returns:
        not a number before the first step.
    """
    paces = [line["time/step"] - line.get("time/eval", 0.0) for line in lines if "time/step" in line]
    if not paces:
        return math.nan
    step = int(lines[-1]["step"])
    validations = len({*range((step // every + 1) * every, steps + 1, every), steps} - {step})
    each = fmean([line["time/eval"] for line in lines if "time/eval" in line] or [0.0])
    return median(paces[-RECENT:]) * (steps - step) + each * validations * (step < steps)
