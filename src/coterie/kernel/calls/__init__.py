"""Calls: runs functions for `scene.call`, in processes that may die without harm to the run.

A function runs in a worker (`workers.py`), which finds it by its module and name (`places.py`). A function that only
waits for its own process is marked `InThread` and runs in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from coterie.errors import CallError, Unavailable
from coterie.kernel.calls.places import Place, named, place_of
from coterie.kernel.calls.workers import AT_ONCE, Crashed, TimedOut, WorkerPool, pool

__all__ = [
    "AT_ONCE", "Crashed", "InThread", "Perform", "Place", "TimedOut", "WorkerPool", "named", "perform_inline",
    "place_of", "pool", "run",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
Perform = Callable[[Callable[..., Any], tuple[Any, ...]], Awaitable[Any]]
"""A function that runs a call live and returns its JSON; it raises CallError or Unavailable."""


class InThread(Generic[P, R]):
    """A function that only waits for something isolated already: its calls run in a thread, not in a worker.

    A thread cannot be ended, so no limit of the run's applies: this is for functions that bound their own time and
    hand everything that may go wrong to another process, as the sandbox's do.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Returns the function's result."""
        return self._function(*args, **kwargs)


async def run(function: Callable[..., Any], args: tuple[Any, ...], limit_s: float) -> Any:
    """Runs a call and returns its result.

    Args:
        limit_s: seconds that the function may take; its worker's start does not count, and one in a thread has
            limits of its own.

    Raises:
        CallError: it raised; TimedOut, Crashed.
        Unavailable: it raised that, or no worker could be had.
        EnvError: no worker can import it, or its result is not JSON.
    """
    if isinstance(function, InThread):
        return await _in_thread(function, args)
    return await pool().run(place_of(function), args, limit_s)


async def perform_inline(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Runs a call at once, without a time limit; what it raises becomes a CallError."""
    try:
        return function(*args)
    except Unavailable:
        raise
    except Exception as error:  # whatever a tool raises is data for `play`
        raise CallError(type(error).__name__, str(error)) from error


async def _in_thread(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Runs a call in a thread that nobody waits for at the end: one that hangs cannot hold the run."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        elif isinstance(error, Unavailable):
            done.set_exception(error)
        else:
            done.set_exception(CallError(type(error).__name__, str(error)))  # whatever it raises is data for `play`

    def work() -> None:
        result, failure = None, None
        try:
            result = function(*args)
        except BaseException as error:  # passed to the waiting coroutine, not swallowed
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended, so the waiting side has left
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, daemon=True).start()
    return await done
