"""The sandbox: all model-written code runs in it.

    box = Box(time_s=2.0)
    calls(box.json(), "def f(x): return x + 1", [["f", [1]]])   # [{"status": "ok", "value": 2}]

The functions are made for `scene.call`: they take and return JSON, and a replay never runs them again. They only wait
for a sandbox and have their own limits, so they run in the process that keeps the warm sandboxes. An expected value
never enters a sandbox; the caller compares. If no sandbox is available, `Unavailable` is raised. Whatever a program
does is reported as an answer: ok, error, timeout, memory, output or refused.

`keeper.py` and `program.py` run inside, `border.py` reads the output, and `plain.py` defines the data that may cross.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from coterie.errors import ConfigError, Unavailable
from coterie.kernel.calls import InThread
from coterie.kernel.once import Once
from coterie_worlds.sandbox.backends import BACKENDS, Backend, Box, missing
from coterie_worlds.sandbox.border import Message
from coterie_worlds.sandbox.cgroups import level
from coterie_worlds.sandbox.plain import encode
from coterie_worlds.sandbox.remembered import ResultCache, decided
from coterie_worlds.sandbox.trial import MOST_TIMEOUTS, Trial, outcome
from coterie_worlds.sandbox.values import same, written
from coterie_worlds.sandbox.worker import SandboxPool, SandboxWorker

__all__ = [
    "BACKENDS",
    "Answer",
    "Backend",
    "Box",
    "calls",
    "check",
    "encode",
    "judged",
    "level",
    "pool",
    "runs",
    "same",
    "written",
]

Answer = dict[str, Any]
"""An answer of a program: its status, and value, output, message and the like where there are any."""
LONGEST_PROGRAM = 1 << 16
"""Maximum number of characters of a program."""
REMEMBERED = ResultCache()


@Once
def pool(box: Box) -> SandboxPool:
    """Returns the process's warm sandboxes of one kind."""
    return SandboxPool(box)


def check(box: Box) -> None:
    """Runs one small program, to see that sandboxes work here.

    Raises:
        ConfigError: this machine cannot isolate it, and what to do.
    """
    wrong = missing(box.backend)
    if not wrong:
        try:
            with pool(box).worker() as worker:
                answers = [worker.load("def f(): return 1"), worker.call(name="f", args=[], kwargs={})]
            wrong = "" if answers == [{"status": "loaded"}, {"status": "returned", "value": 1}] else str(answers)
        except Unavailable as fault:
            wrong = str(fault)
    if wrong:
        raise ConfigError(f"model-written code cannot be run here: {wrong}")


@InThread
def calls(box: dict[str, Any], program: str, asked: list[list[Any]]) -> list[Answer]:
    """Loads a program and calls its functions, one after the other, in one process.

    One that ends the process, or its time, is loaded again for the next call.

    Args:
        asked: pairs of a name and its arguments, plain data as `encode` writes it.

    Returns:
        an answer each, with the `value` a call returned; a program that does not load answers for all.
    """

    def answers(worker: SandboxWorker) -> list[Answer]:
        loaded = worker.load(program)
        if loaded["status"] != "loaded":
            return [_answer(loaded)] * len(asked)
        return _patiently(lambda name, args: _answer(worker.call(name=name, args=args, kwargs={})), asked)

    return _remembered("calls", box, program, asked, answers)


@InThread
def runs(box: dict[str, Any], program: str, stdins: list[str]) -> list[Answer]:
    """Runs a whole program once for each standard input, each time in a new process and an empty folder.

    Returns:
        an answer each, with the `output` it wrote.

    Raises:
        ConfigError: a standard input is longer than the box allows.
    """
    most = Box.of(box).stdin_kb << 10
    if any(len(text) > most for text in stdins):
        raise ConfigError(f"a test's standard input is longer than environment.stdin_kb = {most >> 10}; set it higher")

    def answers(worker: SandboxWorker) -> list[Answer]:
        return _patiently(lambda text: _answer(worker.run(program, text)), [[text] for text in stdins])

    return _remembered("runs", box, program, stdins, answers)


def _remembered(
    what: str, box: dict[str, Any], program: str, asked: list[Any], answers: Callable[[SandboxWorker], list[Answer]]
) -> list[Answer]:
    """Returns a program's answers: earlier ones, if it was asked the same and nothing else had a part in them."""
    if refused := _refused(program):
        return [refused] * len(asked)
    key = json.dumps([what, box, program, asked])
    if (known := REMEMBERED.get(key)) is not None:
        return json.loads(known)
    with pool(Box.of(box)).worker() as worker:
        given = answers(worker)
    if decided(program, given):
        REMEMBERED.put(key, json.dumps(given))
    return given


def _patiently(ask: Callable[..., Answer], questions: Iterable[Sequence[Any]]) -> list[Answer]:
    """Returns an answer to each question; after too many timeouts it asks no more, and the others time out."""
    answers: list[Answer] = []
    late = 0
    for question in questions:
        answers.append(ask(*question) if late < MOST_TIMEOUTS else {"status": "timeout"})
        late += answers[-1]["status"] == "timeout"
    return answers


def _answer(message: Message) -> Answer:
    """Returns a message in the form that the caller gets."""
    status = message["status"]
    if status in ("returned", "ran", "loaded"):
        return {"status": "ok", **{key: message[key] for key in ("value", "output") if key in message}}
    said = ": ".join(message[key] for key in ("name", "message") if message.get(key))
    kept = {key: message[key] for key in ("kind",) if key in message}
    return {"status": status, **({"message": said} if said else {}), **kept}


@InThread
def judged(box: dict[str, Any], tests: str, program: str, name: str, told: int = 0) -> Answer:
    """Runs test code that defines `check(candidate)` against a program's function.

    The tests run in one sandbox and the program in another; calls and their results cross as plain data, functions
    and iterators as something to call, exceptions by the name of Python's own, and what a call changed in its
    arguments is changed in the tests' too. So a program cannot touch what judges it.

    Args:
        tests: with every assert a call of `__record__`, see `formats.py`.
        name: the function.
        told: how many calls of it are told.

    Returns:
        an answer with `passed` and `total` asserts, calls `asked`, `answered` and out of time (`late`), and the
        first `calls` that could be made again, as pairs of JSON: their arguments, and what was answered, "" if the
        assert that they were part of did not hold; not ok when the program or the tests do not load.
    """
    if refused := _refused(program):
        return refused
    chosen = pool(Box.of(box))
    with chosen.worker() as judge, chosen.worker() as worker:
        loaded = worker.load(program, crossing=True)
        if loaded["status"] != "loaded":
            return _answer(loaded)
        trial = Trial(judge, worker, name, told)
        last = trial.run(tests)
    return outcome(trial, last, tests.count("__record__(")) or _answer(last)


def _refused(program: str) -> Answer | None:
    if len(program) > LONGEST_PROGRAM or "\0" in program:
        return {"status": "refused", "message": f"a program has at most {LONGEST_PROGRAM} characters, and no NUL"}
    return None
