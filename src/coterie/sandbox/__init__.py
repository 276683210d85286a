"""The sandbox: nothing that a model wrote runs anywhere else.

    box = Box(time_s=2.0)
    calls(box.json(), "def f(x): return x + 1", [["f", [1]]])   # [{"status": "ok", "value": 2}]

The functions are made for `scene.call`: JSON in, JSON out, and a replay never runs them again. They only wait
for a sandbox, within limits of their own, so their calls stay in the process that keeps the warm ones. No
expected value ever enters a sandbox; the caller compares. Infrastructure trouble raises `Unavailable`; everything
a program does is an answer: ok, error, timeout, memory, output, refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from coterie.calls import InThread
from coterie.errors import ConfigError, Unavailable
from coterie.sandbox.backends import BACKENDS, Backend, Box, missing
from coterie.sandbox.inside import decode, encode
from coterie.sandbox.worker import Answer, Pool

__all__ = ["BACKENDS", "Answer", "Backend", "Box", "calls", "check", "decode", "encode", "judged", "pool", "runs"]

LONGEST_PROGRAM = 1 << 16
"""Characters of a program."""
MOST_CALLS = 100_000
"""Calls of a candidate that one judge may make."""
MOST_TIMEOUTS = 3
"""Calls out of time after which a program is not called again: the rest are out of time too."""


@lru_cache
def pool(box: Box) -> Pool:
    """The process's warm sandboxes of one kind."""
    return Pool(box)


def check(box: Box) -> None:
    """Runs one small program. Raises: ConfigError: this machine cannot isolate it, and what to do."""
    wrong = missing(box.backend)
    if not wrong:
        try:
            found = calls(box.json(), "def f(): return 1", [["f", []]])
            wrong = "" if found == [{"status": "ok", "value": 1}] else str(found)
        except Unavailable as fault:
            wrong = str(fault)
    if wrong:
        raise ConfigError(f"model-written code cannot be run here: {wrong}")


@InThread
def calls(box: dict[str, Any], program: str, asked: list[list[Any]]) -> list[Answer]:
    """Loads a program and calls its functions, one after the other, in one sandbox.

    The same program asked the same is run once, and remembered unless its time was over: replies to one
    prompt are often equal.

    Args: asked: pairs of a name and its arguments, plain data as `encode` writes it.
    Returns: an answer each, with the `value` a call returned; a program that does not load answers for all.
    """
    if refused := _refused(program):
        return [refused] * len(asked)
    try:
        return json.loads(_called(Box.of(box), program, json.dumps(asked)))
    except _Late as late:
        return late.answers


class _Late(Exception):
    """Answers that depend on how busy the machine was, and are not remembered."""

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__("some call took too long")
        self.answers = answers


@lru_cache(maxsize=4096)
def _called(box: Box, program: str, asked: str) -> str:
    questions = json.loads(asked)
    with pool(box).worker() as worker:
        loaded = worker.ask("load", source=program)
        if loaded["status"] == "ok":
            answers = _patiently(lambda name, args: _valued(worker.ask("call", name=name, args=args)), questions)
        else:
            answers = [loaded] * len(questions)
    if any(answer["status"] == "timeout" for answer in answers):
        raise _Late(answers)
    return json.dumps(answers)


@InThread
def runs(box: dict[str, Any], program: str, stdins: list[str]) -> list[Answer]:
    """Runs a whole program once for each standard input, in one sandbox.

    Returns: an answer each, with the `output` it wrote.
    """
    if refused := _refused(program):
        return [refused] * len(stdins)
    with pool(Box.of(box)).worker() as worker:
        return _patiently(lambda text: worker.ask("run", source=program, stdin=text), [[text] for text in stdins])


def _patiently(ask: Callable[..., Answer], questions: Iterable[Sequence[Any]]) -> list[Answer]:
    """An answer to each question, until too many have taken too long."""
    answers: list[Answer] = []
    late = 0
    for question in questions:
        answers.append(ask(*question) if late < MOST_TIMEOUTS else {"status": "timeout"})
        late += answers[-1]["status"] == "timeout"
    return answers


@InThread
def judged(box: dict[str, Any], tests: str, program: str, name: str, trace: str = "") -> Answer:
    """Test code that defines `check(candidate)`, against a program's function.

    The tests run in one sandbox and the program in another; calls and their results cross as plain
    data, so that a program cannot touch what judges it.

    Args: tests: with every assert a call of `__record__`, see `problems/files.py`. name: the function. trace:
        a function of the program that counts something.
    Returns: an answer with `passed` and `total` asserts, calls `asked`, `answered` and out of time (`late`), and
        `traced`, passed asserts in which the count rose; not ok when the program or the tests do not load.
    """
    if refused := _refused(program):
        return refused
    chosen = pool(Box.of(box))
    with chosen.worker() as judge, chosen.worker() as worker:
        loaded = worker.ask("load", source=program)
        if loaded["status"] != "ok":
            return loaded
        answer = judge.ask("check", source=tests, name=name)
        statuses: list[str] = []
        rose: set[int] = set()
        count = 0
        while answer["status"] == "asked" and len(statuses) < MOST_CALLS and {"at", "args", "kwargs"} <= answer.keys():
            given = {key: answer[key] for key in ("args", "kwargs")}
            if statuses.count("timeout") < MOST_TIMEOUTS:
                found = _valued(worker.ask("call", name=name, **given))
            else:
                found = {"status": "timeout"}
            statuses.append(found["status"])
            if trace and count != (count := worker.ask("call", name=trace, args=[]).get("value", count)):
                rose.add(answer["at"])
            answer = judge.send(found)
    if answer["status"] != "ok" or "held" not in answer:
        return {"status": "refused"} if answer["status"] in ("ok", "asked") else answer
    held = [one is True for one in answer["held"]]
    untried = max(1, tests.count("__record__(") - len(held)) if answer.get("left") else 0
    return {
        "status": "ok",
        "passed": sum(held),
        "total": len(held) + untried,
        "asked": len(statuses),
        "answered": statuses.count("ok"),
        "late": statuses.count("timeout"),
        "traced": sum(at in rose for at, passed in enumerate(held) if passed),
    }


def _valued(answer: Answer) -> Answer:
    """An answer that says ok must hold a value."""
    return answer if answer["status"] != "ok" or "value" in answer else {"status": "refused"}


def _refused(program: str) -> Answer | None:
    if len(program) > LONGEST_PROGRAM or "\0" in program:
        return {"status": "refused", "message": f"a program has at most {LONGEST_PROGRAM} characters, and no NUL"}
    return None
