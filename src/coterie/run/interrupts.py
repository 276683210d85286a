"""Signals during a run: the first asks it to finish its step and save, another gives the step up.

Ctrl-C (SIGINT) waits for the step however long it takes; a second one gives it up and saves the run as it was after
the last one; a third stops at once, as of the last checkpoint. SIGTERM, SIGUSR1 and SIGHUP come from a scheduler or a
closed terminal, which will kill soon: after a grace time they give the step up by themselves. An update or a checkpoint
that is under way then is waited for, but no longer than SHIELD_S: it may hang.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from coterie.kernel.safe import tell

SHIELD_S = 30.0
"""Seconds that work under a shield may take after the grace time, or the grace time again if that is longer."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Stop(KeyboardInterrupt):
    """Exception by which a signal stops a run. number: the signal's. save: there is time to write a checkpoint."""

    def __init__(self, message: str, number: int, *, save: bool) -> None:
        super().__init__(message)
        self.number = number
        self.save = save


class Interrupts:
    """Handlers of the signals that stop a run, while it is entered; outside the main thread none are set.

    number: the signal that asked to stop, 0 if none did. beginning: there is no step to finish yet, and the first
    signal stops at once. busy: what the run does now, for the message. whole: whether the weights are those of a step.
    """

    def __init__(self, grace_s: float) -> None:
        self.number = 0
        self.beginning = False
        self.busy = "what it does"
        self.whole = True
        self._grace_s = grace_s
        self._shields = 0
        self._overdue = False
        self._given_up = False
        self._until = math.inf
        self._stop: Stop | None = None
        self._before: dict[int, object] = {}
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # started with nohup
                    self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._timer:
            self._timer.cancel()
        for number, before in self._before.items():
            signal.signal(number, before)  # pyright: ignore[reportArgumentType]
        if error is not None and (stop := self.stop_of(error)) is not error:
            raise stop from None

    def stop_of(self, error: BaseException) -> BaseException:
        """Returns the run's own Stop in place of a plain interrupt, which a library such as Ray raises instead."""
        ours = isinstance(error, Stop) or not isinstance(error, KeyboardInterrupt)
        return error if ours or self._stop is None else self._stop

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Protects what must end whole, such as an update or a write, for a while after the grace time."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._overdue and not self._shields:
            self._give_up()

    def _arrived(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.beginning and not self._shields:
            self.number = number  # a library that is being loaded may swallow what is raised: then at the first step
            raise self._stopped("stopped before its first step", number, save=False)
        if not self.number:
            self.number = number
            if number == signal.SIGINT:
                tell(f"finishing {self.busy}, then saving; press again to give it up")
            else:
                tell(f"{name}: finishing {self.busy} within {self._grace_s:g} s, then saving")
                self._again(self._grace_s)
        elif (self._given_up and number == signal.SIGINT) or (self._shields and time.monotonic() > self._until):
            raise self._stopped("stopped at once", number, save=False)
        elif self._shields:
            self._given_up = True
            if not self._overdue and number != signal.SIGINT:
                limit_s = max(self._grace_s, SHIELD_S)
                self._until = time.monotonic() + limit_s
                self._again(limit_s)
            self._overdue = True
        else:
            self._give_up()

    def _again(self, after_s: float) -> None:
        """Has the signal that asked to stop sent once more, after some seconds."""
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(after_s, os.kill, (os.getpid(), self.number))
        self._timer.daemon = True
        self._timer.start()

    def _give_up(self) -> None:
        self._overdue, self._given_up = False, True
        raise self._stopped("stopped", self.number, save=True)

    def _stopped(self, message: str, number: int, *, save: bool) -> Stop:
        self._stop = Stop(message, number, save=save)
        return self._stop
