"""A trial: test code in one sandbox and a program in another. The host forwards every message between them."""

from __future__ import annotations

import json
from typing import Any

from coterie_worlds.sandbox.border import FAILURES, Message
from coterie_worlds.sandbox.values import acting
from coterie_worlds.sandbox.worker import SandboxWorker

MOST_MESSAGES = 100_000
"""Maximum number of messages of one trial."""
MOST_TIMEOUTS = 3
"""Number of calls out of time after which a program is not called again: the rest are out of time too."""
LONGEST_CALL = 1 << 16
"""Maximum number of characters of a call's arguments and value that is told: an episode's log keeps it."""
DEEPEST = 50
"""Maximum depth of calls within calls, from one side to the other and back."""
TOO_MUCH: Message = {"status": "error", "kind": "RecursionError", "message": "the tests and the program go on for ever"}


class Trial:
    """A trial of one program under test code that defines `check(candidate)`.

    Args:
        judge: an unused sandbox.
        worker: one that has loaded the program.
        name: the function.
        calls: how many calls of it are noted.
    """

    def __init__(self, judge: SandboxWorker, worker: SandboxWorker, name: str, calls: int) -> None:
        self.judge = judge
        self.worker = worker
        self.name = name
        self.held: list[bool] = []
        self.statuses: list[str] = []
        self.calls = calls
        self.answered: list[tuple[int, str, str]] = []
        self._messages = 0

    def run(self, tests: str) -> Message:
        """Runs the tests, and returns their last message: done, or how they ended."""
        return self._heard(self.judge.check(tests, self.name), "done", 0)

    def _heard(self, message: Message, wanted: str, depth: int) -> Message:
        """Returns the tests' next message but questions and asserts, once all that they ask has been answered."""
        while message["status"] in ("asked", "held"):
            self._messages += 1
            if message["status"] == "held":
                self.held.append(message["held"])
                answer: dict[str, Any] = {"on": True}
            else:
                answer = {"answer": self._program(message, depth + 1)}
            message = self.judge.tell(answer, ("asked", "held", wanted))
        return message

    def _program(self, asked: Message, depth: int) -> Message:
        """Returns the program's answer to the tests, once all that it asks of them has been answered."""
        first = asked["target"] is None
        if depth > DEEPEST or self._messages > MOST_MESSAGES:
            return TOO_MUCH
        if self.statuses.count("timeout") >= MOST_TIMEOUTS:
            message: Message = {"status": "timeout"}
        else:
            message = self.worker.call(("returned", "asked"), **call_of(asked, self.name))
        while message["status"] == "asked":
            self._messages += 1
            if depth >= DEEPEST or self._messages > MOST_MESSAGES:
                answer = TOO_MUCH
            else:
                answer = self._heard(self.judge.tell({"call": call_of(message)}, SAYS), "returned", depth + 1)
            message = self.worker.tell({"answer": answer}, ("returned", "asked"), fresh=False)
        if first:
            self.statuses.append("ok" if message["status"] == "returned" else message["status"])
            again = not (asked["kwargs"] or acting(asked["args"]))
            if message["status"] == "returned" and again and len(self.answered) < self.calls:
                call = (json.dumps(asked["args"]), json.dumps(message["value"]))
                if sum(map(len, call)) <= LONGEST_CALL:
                    self.answered.append((len(self.held), *call))
        return message


SAYS = ("asked", "held", "returned")
"""Statuses of the messages that test code may send while it is asked something."""


def call_of(asked: Message, name: str = "") -> dict[str, Any]:
    """Returns one side's request as a call for the other: a function by its name, or a given thing by its number."""
    call = {"args": asked["args"], "kwargs": asked["kwargs"]}
    return call | ({"name": name} if asked["target"] is None else {"target": asked["target"], "verb": asked["verb"]})


def outcome(trial: Trial, last: Message, untried: int) -> dict[str, Any] | None:
    """Returns the number of asserts that held, of all, and how the calls went; None if the tests could not begin.

    Args:
        untried: asserts in the tests' text: at least so many there are where not all could be tried.
    """
    held = trial.held
    if last["status"] in FAILURES and not held:
        return None
    if last["status"] in FAILURES or last["left"]:
        total = len(held) + max(1, untried - len(held))
    else:
        total = max(1, len(held))  # tests without an assert pass when they run to their end
        held = held or [True]
    return {
        "status": "ok",
        "passed": sum(held),
        "total": total,
        "asked": len(trial.statuses),
        "answered": trial.statuses.count("ok"),
        "late": trial.statuses.count("timeout"),
        "calls": [[args, value if at < len(held) and held[at] else ""] for at, args, value in trial.answered],
    }
