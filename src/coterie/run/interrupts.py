"""Signals during a run: the first asks it to finish its step and save, another gives the step up.

Ctrl-C (SIGINT) waits for the step however long it takes; a second one gives it up and saves the run as it was after
the last one; a third stops at once, as of the last checkpoint. SIGTERM, SIGUSR1 and SIGHUP come from a scheduler or a
closed terminal, which will kill soon: after a grace time they give the step up by themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from coterie.kernel.safe import tell

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Stop(KeyboardInterrupt):
    """A run stops. number: the signal's. save: whether there is time to write a checkpoint."""

    def __init__(self, message: str, number: int, *, save: bool) -> None:
        super().__init__(message)
        self.number = number
        self.save = save


class Interrupts:
    """Takes the signals while it is entered; outside the main thread they are not ours, and nothing is taken.

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
        self._before: dict[int, object] = {}
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # started with nohup
                    self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()
        for number, before in self._before.items():
            signal.signal(number, before)  # pyright: ignore[reportArgumentType]

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """The end of the grace time waits for what is begun here: weights move together, files are whole."""
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
            raise Stop("stopped before its first step", number, save=False)
        if not self.number:
            self.number = number
            if number == signal.SIGINT:
                tell(f"finishing {self.busy}, then saving; press again to give it up")
            else:
                tell(f"{name}: finishing {self.busy} within {self._grace_s:g} s, then saving")
                self._timer = threading.Timer(self._grace_s, os.kill, (os.getpid(), number))
                self._timer.daemon = True
                self._timer.start()
        elif number == signal.SIGINT and self._given_up:
            raise Stop("stopped at once", number, save=False)
        elif self._shields:
            self._given_up = True
            self._overdue = True
        else:
            self._give_up()

    def _give_up(self) -> None:
        self._overdue, self._given_up = False, True
        raise Stop("stopped", self.number, save=True)
