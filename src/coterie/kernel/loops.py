"""Event loops: one for a run's engine, in a thread of its own, and one for each rollout's play.

`play` stays in the calling thread, because the watchdog can interrupt code only in the main thread. The engine may have
background tasks, so its loop runs from the first request of a run to the last, also while the learner works.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from coterie.errors import CoterieError, EngineError, Unavailable
from coterie.kernel.engine import RETRIES, Engine, Request
from coterie.kernel.episode import LoggedPrompt, Sample
from coterie.kernel.mistakes import raised_at, said

T = TypeVar("T")
SHUT_S = 60.0
"""Seconds that an engine has to close in."""


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in an event loop of its own. If a signal stops it, its tasks end without error messages.

    If a loop already runs in this thread, as in a notebook, the new loop runs in another thread.
    """
    if not _looping():
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(_quietly)
            return runner.run(coroutine)
    with Thread("play") as beside:
        return beside.run(coroutine)


def _looping() -> bool:
    """Returns True if an event loop runs in this thread."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def _quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def aside(function: Callable[[], T]) -> T:
    """Calls a function that uses `drive`; if an event loop already runs in this thread, it is called in another one."""
    if not _looping():
        return function()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


class Thread:
    """An event loop that runs in a thread of its own, as long as this is entered."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_quietly)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"coterie-{name}", daemon=True)

    def __enter__(self) -> Thread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Cancels the tasks that are left, and waits until the thread has ended."""
        self.run(_cancelled())
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        while not self._stopped:  # an `exit()` in a task ends run_forever; the loop goes on, for others wait
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins a coroutine in the thread; an `exit()` in it is an error like another."""
        return asyncio.run_coroutine_threadsafe(_without_exit(coroutine), self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """Runs a coroutine in the thread and returns its result.

        Raises:
            TimeoutError: it takes longer than the limit.
        """
        future = self.submit(coroutine)
        try:
            return future.result(limit_s)
        except BaseException:
            future.cancel()
            raise


async def _without_exit(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__} was raised in a thread of coterie's") from error


async def _cancelled() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Hosted(Engine):
    """An engine on its own loop, in its own thread, from `open` to `shut`; a run uses the engine through it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.policies, engine.config)
        self.engine = engine
        self._thread: Thread | None = None

    def __enter__(self) -> Hosted:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def open(self) -> None:
        """Starts the engine, unless it is up.

        Raises:
            CoterieError: it does not come up.
        """
        if self._thread is not None:
            return
        self._thread = Thread("engine").__enter__()
        self.engine.closing = False
        try:
            self._thread.run(self.engine.start())
        except BaseException as error:
            with contextlib.suppress(Exception):  # the engine is half started; the first error is raised
                self.shut()
            if isinstance(error, CoterieError) or not isinstance(error, Exception):
                raise
            where = raised_at(error, inspect.getfile(type(self.engine)))
            told = str(error) if isinstance(error, Unavailable) else f"{said(error)} ({where})"
            raise EngineError(f"engine {self.title} did not start: {told}") from error

    def shut(self) -> None:
        """Closes the engine and its loop, once what it computes just now is over."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self.engine.closing = True
        try:
            thread.run(self.engine.close(), SHUT_S)
        except TimeoutError as error:  # its thread ends with the process
            raise EngineError(
                f"engine {self.title} has not closed within {SHUT_S:g} s: something in it waits without `await`"
            ) from error
        except BaseException:
            thread.__exit__()
            raise
        thread.__exit__()

    @property
    def title(self) -> str:
        """Title of the engine."""
        return self.engine.title

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """Renders a prompt as the engine does."""
        return self.engine.render(policy, role, prompt)

    def context(self, policy: str) -> int:
        """Returns the context length that the engine has."""
        return self.engine.context(policy)

    @property
    def tried_again(self) -> Counter[str]:
        """Number of the engine's retries, by fault."""
        return self.engine.tried_again

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Counts tokens as the engine does."""
        return self.engine.tokens(request, samples)

    def take_over(self, version: int) -> None:
        """Has the engine take over every policy's weights, and waits until it has; after a fault it is started again.

        Raises:
            EngineError: the fault remains.
        """
        for name in self.engine.policies:
            for again in reversed(range(RETRIES + 1)):
                try:
                    self._there.run(self.engine.sync(name, version))
                    break
                except Unavailable as fault:
                    if not again:
                        raise EngineError(f"engine {self.title} did not take over policy '{name}': {fault}") from fault
                    with contextlib.suppress(Unavailable):  # the next try says so
                        self._there.run(self.engine.start())

    def give_way(self) -> None:
        """Tells the engine that nothing is asked until it takes over other weights."""
        self._there.run(self.engine.rest())

    async def start(self) -> None:
        """Starts the engine, on its loop."""
        await self._brought(self.engine.start)

    async def generate(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """Has the engine answer requests, on its loop."""
        return await self._brought(lambda: self.engine.generate(requests))

    async def sync(self, policy: str, version: int) -> None:
        """Has the engine take over a policy's weights, on its loop."""
        await self._brought(lambda: self.engine.sync(policy, version))

    async def rest(self) -> None:
        """Has the engine rest, on its loop."""
        await self._brought(self.engine.rest)

    async def close(self) -> None:
        """Closes the engine, on its loop."""
        await self._brought(self.engine.close)

    async def _brought(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wrap_future(self._there.submit(begin()))

    @property
    def _there(self) -> Thread:
        if self._thread is None:
            raise RuntimeError("the engine is closed")
        return self._thread
