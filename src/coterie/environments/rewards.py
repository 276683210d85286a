"""Calls TRL-style reward functions in a worker, with one completion at a time."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coterie.errors import Unavailable
from coterie.kernel.calls.inside import load, raised_at
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON

LONGEST = 300
"""Maximum characters of an error that are told."""


class RewardMisused(Exception):
    """An error: a reward function gave something that is no reward."""


def judged(
    functions: Sequence[Sequence[str]], prompt: JSON, completion: JSON, ids: list[int], columns: Mapping[str, JSON]
) -> JSON:
    """Calls reward functions with one completion and returns their rewards.

    Args:
        functions: of each the module, its file or "", and its name.
        prompt: a string, or messages; a completion of messages is one message.
        columns: the row's others.

    Returns:
        `rewards`, one a function, null where it does not apply; `metrics` and `extra`, by name, that they logged.

    Raises:
        Unavailable: one raised. Misused: it returned no number.
    """
    rewards: list[float | None] = []
    noted: dict[str, dict[str, JSON]] = {"metrics": {}, "extra": {}}
    for module, file, name in functions:
        load(module, file or None)
        function = getattr(sys.modules[module], name)
        try:
            given = _called(function, prompt, completion, ids, columns, noted)
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            where = raised_at(error, module) or _home(function)
            raise Unavailable("reward_error", f"{name} raised {_told(error)}{where and f' ({where})'}") from error
        try:
            rewards.append(_number(given, name))
        except RewardMisused as error:
            where = _home(function)
            raise RewardMisused(f"{error}{where and f' ({where})'}") from error
    return {"rewards": rewards, **noted}


def _called(
    function: Callable[..., Any], prompt: JSON, completion: JSON, ids: list[int], columns: Mapping[str, JSON],
    noted: Mapping[str, dict[str, JSON]],
) -> Any:  # fmt: skip
    """Returns the result of a function, called with the keywords of TRL's trainer."""

    def log_metric(name: str, value: float) -> None:
        noted["metrics"][str(name)] = float(value)

    def log_extra(column: str, values: Sequence[Any]) -> None:
        noted["extra"][str(column)] = one_line(str(values[0]))

    given = function(
        prompts=[prompt], completions=[completion], completion_ids=[ids],
        **{name: [value] for name, value in columns.items()},
        trainer_state=None, log_extra=log_extra, log_metric=log_metric,
    )  # fmt: skip
    return asyncio.run(given) if inspect.iscoroutine(given) else given


def _home(function: Any) -> str:
    """Returns a function's place, as `file.py:12`, for an error about it; "" if that is not known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _told(error: BaseException) -> str:
    """Returns the error as one short line, even if its own text is long or cannot be made."""
    try:
        text = str(error)
    except Exception:  # a user's class
        text = ""
    return f"{type(error).__name__}: {one_line(text):.{LONGEST}}"


def _number(given: Any, name: str) -> float | None:
    """Returns the only reward of a list. Raises: Misused: it is none."""
    try:
        (value,) = given
        if isinstance(given, str) or isinstance(value, str):
            raise TypeError("text is no reward")
        number = None if value is None else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise RewardMisused(
            f"{name} returned {given!r:.80}; a reward function returns a list, of a number or None for each completion"
        ) from error
    if number is not None and not math.isfinite(number):
        raise RewardMisused(f"{name} returned {number}, which is no reward")
    return number
