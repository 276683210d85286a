"""The watchdog: it stops and reports a `play` that does not return to the scene.

A loop in `play` that awaits nothing would block the run for ever. So every uninterrupted piece of environment code
(from an answer to the next request, or one `task`) runs under `Watch.over`, which only records when it started. A timer
checks this record a few times within the limit. It counts checks, not seconds, so a process that was suspended (Ctrl-Z,
a scheduler) is not late. Only the environment's own code counts, not a slow engine, a slow call or a slow person.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, ClassVar, TypeVar

from coterie.errors import EnvError

T = TypeVar("T")
PLAY_TIMEOUT_S = 60.0
"""Seconds that one piece of `play` may take, where no setting says."""
OURS = (__file__, str(Path(__file__).with_name("mistakes.py")))
"""Files through which an environment's code is called."""
LOOKS = 10
"""Number of times that the timer looks within the limit."""
PATIENCE = 3
"""Number of time limits after which the process is ended, if a piece of code catches the exception and goes on."""
STAYS = (
    "does not come back: it catches everything (write `except Exception`, not `except:`), or waits outside of Python"
)


class Stuck(EnvError):
    """A piece of an environment's code took longer than it may."""


class Late(BaseException):
    """Raised inside the piece that took too long. No Exception: its own handlers must not catch it."""


class Watch:
    """A watchdog on pieces of an environment's code in one thread, while it is entered."""

    __slots__ = (
        "_before", "_began", "_entered", "_fired", "_lock", "_looks", "_over", "_process", "_seen", "_stuck", "_thread",
        "_what", "limit_s",
    )  # fmt: skip

    ends_process: ClassVar[bool] = True
    """True if code that does not return ends the process. False in servers: the code stays in its thread."""

    def __init__(self, limit_s: float = PLAY_TIMEOUT_S) -> None:
        """Sets the limit for one piece of code to `limit_s` seconds; the timer is late by a tenth of that at most."""
        self.limit_s = limit_s
        self._process = os.getpid()
        self._began = 0.0
        self._seen = 0.0
        self._looks = 0
        self._what: Callable[[], str] = str
        self._fired = False
        self._stuck = ""
        self._entered = 0
        self._lock = threading.Lock()
        self._thread = 0
        self._over: threading.Event | None = None
        self._before: Any = None

    def over(self, what: Callable[[], str], function: Callable[..., T], *args: Any) -> T:
        """Runs a function under the time limit and returns its result.

        Args:
            what: says what runs, for the message.

        Raises:
            Stuck: it took too long, or another piece has since this was entered: a rollout has hundreds, and each
                would be waited for.
        """
        if self._stuck:
            raise Stuck(self._stuck)
        try:
            try:
                self._what = what
                self._began = monotonic()
                return function(*args)
            finally:
                self._began = 0.0
                if os.getpid() != self._process:
                    self._leave("has forked, and its child came back from it: give such work to scene.call")
                if self._fired:
                    self._settle()
        except Late as late:
            self._began = 0.0
            self._fired = False
            self._stuck = (
                f"{what()} has run for more than {self.limit_s:g} s{_places(late)}; it may loop for ever: bound the "
                "loop, give heavy work to scene.call, or raise the limit (of a run: engine.play_timeout_s)"
            )
            raise Stuck(self._stuck) from late

    def task(self, make: Callable[..., T], split: str, index: int) -> T:
        """Makes a task of an environment under the time limit.

        Args:
            make: its method `task`.

        Raises:
            Stuck: it took too long.
        """
        with self:
            return self.over(lambda: f"task({split!r}, {index})", make, split, index)

    def __enter__(self) -> Watch:
        self._entered += 1
        if self._entered == 1:
            self._stuck = ""
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._stop()

    def _start(self) -> None:
        """Starts a timer that interrupts the main thread, where it is free; elsewhere, a thread that looks.

        The timer also ends what never lets another thread run, such as a regular expression that backtracks for ever.
        """
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
            self._before = signal.signal(signal.SIGALRM, self._alarm)
            signal.siginterrupt(signal.SIGALRM, False)  # a system call that waits is not interrupted
            signal.setitimer(signal.ITIMER_REAL, self.limit_s / LOOKS, self.limit_s / LOOKS)
        else:
            self._thread = threading.get_ident()
            self._over = threading.Event()
            threading.Thread(target=self._look, args=(self._over,), daemon=True, name="watchdog").start()

    def _stop(self) -> None:
        if self._over is not None:
            self._over.set()
            self._over = None
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)

    def _counted(self) -> int:
        """Counts a check. Returns how many in a row have found the same piece running, without the first."""
        began = self._began  # read once: another thread may end the piece
        self._looks = self._looks + 1 if began and began == self._seen else 0
        self._seen = began
        return self._looks

    def _alarm(self, signum: int, frame: FrameType | None) -> None:
        looks = self._counted()
        if looks >= PATIENCE * LOOKS:
            self._leave(STAYS)
        if looks >= LOOKS:
            raise Late

    def _leave(self, why: str) -> None:
        """Ends the process, since nothing that is raised in the running piece, Ctrl-C included, ends it."""
        text = f"\ncoterie: {self._what()} {why}\n"
        os.write(2, text.encode("ascii", "backslashreplace"))
        os._exit(2)

    def _look(self, over: threading.Event) -> None:
        while not over.wait(self.limit_s / LOOKS):
            looks = self._counted()
            if looks >= PATIENCE * LOOKS and self.ends_process:
                self._leave(STAYS)
            with self._lock:
                self._fired = True  # taken before looking: a piece that ends meanwhile waits until this has decided
                if looks >= LOOKS and self._began == self._seen:
                    _raise_in(self._thread, Late)
                else:
                    self._fired = False

    def _settle(self) -> None:
        """Raises `Late` here if the other thread has raised it for a piece that has ended meanwhile.

        The exception is not cancelled instead. Python 3.11 would then look for it for ever, and hang where calls are
        traced.
        """
        with self._lock:
            fired, self._fired = self._fired, False
        if fired:
            _raise_in(threading.get_ident(), Late)
            while True:
                pass


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Has a thread raise an error at its next step."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _places(late: Late) -> str:
    """Returns the place of the environment's code: its own outermost line, and the innermost if that is another."""
    raised = (
        late.__context__ if isinstance(late.__context__, Late) else late
    )  # the alarm is handled in another thread first, then here
    lines = [line for line in traceback.extract_tb(raised.__traceback__) if line.filename not in OURS]
    if not lines:
        return ""
    first, last = lines[0], lines[-1]
    inside = "" if last is first else f", in {last.name} at {last.filename}:{last.lineno}"
    return f", at {first.filename}:{first.lineno}{inside}"
