"""The exceptions of Coterie, and who can fix the cause.

    CoterieError
    ├── ConfigError       (ValueError)       a setting a person wrote
    ├── EnvError          (RuntimeError)     an environment breaks its contract
    ├── EngineError       (RuntimeError)     an engine breaks its contract
    ├── RolloutError      (RuntimeError)     too much of a step was lost to faults
    ├── GroupError        (ValueError)       samples that may not be compared
    ├── CheckpointError   (OSError)          a run folder or checkpoint cannot be used
    └── UpdateError       (ArithmeticError)  an update went wrong
        └── LearnerLost                      the learner's process ended; weights since the checkpoint are lost

    Unavailable                              infrastructure fault: retried, then the branch is dropped and counted
    CallError                                a function of `scene.call` failed; `play` can handle it

The command line turns a CoterieError into one line and exit code 2; anything else is a bug
and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from textwrap import shorten
from typing import Any


class CoterieError(Exception):
    """An error that the user can correct. The message says where it is, what was found and what to do."""


class ConfigError(CoterieError, ValueError):
    """A configuration that cannot be read or cannot work."""


class EnvError(CoterieError, RuntimeError):
    """An environment broke the contract of `play`."""


class EngineError(CoterieError, RuntimeError):
    """An engine broke its contract: what it answered is no answer."""


class RolloutError(CoterieError, RuntimeError):
    """A rollout lost more branches than the run allows."""


class GroupError(CoterieError, ValueError):
    """Samples were grouped that may not be compared."""


class CheckpointError(CoterieError, OSError):
    """A run folder or a checkpoint is missing, partial, corrupt or in use."""


class UpdateError(CoterieError, ArithmeticError):
    """An update produced numbers that are not finite, or engine and learner differ too much.

    Args:
        message: the text of the error.
        untouched: whether no weight has changed since the previous step. It is False if an earlier optimizer step of
            the same training step has already changed weights.
    """

    def __init__(self, message: str, *, untouched: bool = True) -> None:
        super().__init__(message)
        self.untouched = untouched


class LearnerLost(UpdateError):
    """The learner's process has ended. Its weights since the last checkpoint are lost; the run continues from there."""

    def __init__(self, message: str) -> None:
        super().__init__(message, untouched=False)


class Unavailable(Exception):
    """Infrastructure (an engine, a sandbox) is temporarily unavailable; never caused by a model's output.

    Args:
        stage: a short name of the place. Metrics count dropped branches under `rollout/dropped/<stage>`.
        message: the text of the error.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage

    def __reduce__(self) -> tuple[Any, ...]:
        return Unavailable, (self.stage, str(self))


class ExternalEffect(Unavailable):
    """A branch would change the world, and was stopped.

    Then no branches of its point are compared: those left would be the ones that did nothing, chosen by what they did.
    """

    def __init__(self, message: str) -> None:
        super().__init__("external_effect", message)

    def __reduce__(self) -> tuple[Any, ...]:
        return ExternalEffect, (str(self),)


class CallError(Exception):
    """A function that `scene.call` ran has failed. A replay raises the same error.

    Args:
        kind: the class name of the exception, "timeout", or "crash" if the process ended.
        message: the text of the exception.
        place: the line that raised the error, if known. It is information for the user and is not part of the
            message.
    """

    def __init__(self, kind: str, message: str, place: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.place = place

    def __reduce__(self) -> tuple[type[CallError], tuple[str, str, str]]:
        """Pickles the error by its parts, because the state of `play` is copied."""
        return CallError, (self.kind, self.message, self.place)


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, at most 160 characters, to quote in another message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return shorten(lines[0], 160, placeholder=" …")


def nearest(name: str | None, among: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the most similar name, or "" if none is similar."""
    close = difflib.get_close_matches(name or "", list(among), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
