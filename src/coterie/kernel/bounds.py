"""Validation of what `play` records: finite numbers, texts, and data that a log can hold."""

from __future__ import annotations

import json
import math
import re

from coterie.errors import CallError, EnvError
from coterie.kernel.episode import (
    clean,
)
from coterie.kernel.scene import JSON

DEEPEST = 100
"""Maximum nesting depth of the arguments and the result of a call. Logs are written by recursion."""
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""Pattern of the brackets of lists and objects in JSON; a string matches whole, so that its brackets do not count."""
LARGEST_REWARD = 1e9
"""Maximum size of one reward. A gradient is proportional to it, and is squared and summed over the weights in float32.
1e9 squared, summed over a billion weights, is 1e27, which is well below the largest float32."""
LARGEST_METRIC = 2.0**53
"""Maximum size of one metric. Up to this number a float represents every whole number; means never overflow."""


def checked_number(value: object, what: str, largest: float) -> float:
    """Returns a value as a number that statistics can take.

    Raises:
        EnvError: it is none, not finite, or too large.
    """
    try:
        number = math.nan if isinstance(value, str) else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= largest:
        advice = ": scale it" if isinstance(value, int | float) and math.isfinite(value) else ""
        raise EnvError(f"{what} is {value!r:.80}; it must be a finite number, at most {largest:,.0f} in size{advice}")
    return number


def checked_text(value: object, what: str) -> str:
    """Returns a value as a text that a log can hold.

    Raises:
        EnvError: it is none.
    """
    if not isinstance(value, str):
        raise EnvError(f"{what} is {value!r:.80}; give a string")
    return clean(value)


def as_json(value: JSON, what: str) -> JSON:
    """Returns a value as plain data, the same live and replayed.

    Raises:
        EnvError: it is none.
        CallError: it is data that no log can hold, which may depend on what a model wrote.
    """
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if _depth(written) > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST}")
        return json.loads(clean(written))
    except TypeError as error:
        raise EnvError(f"{what} of scene.call must be JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CallError("unusable", f"{what} of scene.call: {error}") from error


def _depth(written: str) -> int:
    """Returns the depth to which lists and objects nest in JSON."""
    depth = deepest = 0
    for bracket in BRACKETS.findall(written):
        depth += (bracket in "[{") - (bracket in "]}")
        deepest = max(deepest, depth)
    return deepest
