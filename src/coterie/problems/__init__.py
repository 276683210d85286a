"""Programming problems: what they are, and whether a program solves one.

A problem is told to roles as text and judged by hidden tests: arguments and values of a function,
standard input and output of a program, or test code. Where problems come from: `embedded.py` makes
them, `files.py` reads them. Programs run in the sandbox alone, and values are compared out here.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.environment import Task
from coterie.errors import CallError, Unavailable
from coterie.sandbox import calls, decode, judged, runs
from coterie.scene import JSON, Reply, Scene

FENCED = re.compile(r"^```[^\n`]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem(Task):
    """One problem.

    text: what roles are told. name: the function that is asked for; "" where a whole program reads
    standard input. cases: hidden tests as pairs of JSON: a list of arguments and the value, as
    `sandbox.encode` writes them, or two strings. check: test code that defines `check(candidate)`,
    instead of cases. preamble: imports and helpers that stand before a program. solution: a program
    that solves it; "" where none is known. mutants: programs that nearly do.
    """

    text: str = ""
    name: str = ""
    cases: tuple[tuple[str, str], ...] = ()
    check: str = ""
    preamble: str = ""
    solution: str = ""
    mutants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a program did on the hidden tests.

    ran: tests in which it answered at all. timeouts: tests in which its time was over. broken: what the
    interpreter said, where that is all that every test found.
    """

    passed: int
    ran: int
    total: int
    timeouts: int = 0
    broken: str = ""

    @property
    def share(self) -> float:
        """Of tests passed."""
        return self.passed / self.total if self.total else 0.0

    @property
    def solved(self) -> bool:
        """Every test passed, and there was one."""
        return 0 < self.total == self.passed


def program_of(reply: Reply) -> str:
    """The program in a reply: its last fenced block, or all of it; "" where it was cut."""
    if reply.finish != "stop":
        return ""
    fenced = FENCED.findall(reply.text)
    return fenced[-1] if fenced else reply.text


async def examine(
    scene: Scene, box: JSON, problem: Problem, program: str, extra: Sequence[str] = ()
) -> tuple[Verdict, list[Any]]:
    """A program's verdict on a problem's hidden tests, and what it answers to more inputs."""
    if problem.check:
        verdict = verdict_of(await boxed(scene, judged, box, problem.check, whole(problem, program), problem.name))
        return verdict, await answers_of(scene, box, problem, program, extra) if extra else []
    answers = await answers_of(scene, box, problem, program, [*(given for given, _ in problem.cases), *extra])
    count = len(problem.cases)
    return judge(problem, answers[:count]), answers[count:]


def verdict_of(answer: Any) -> Verdict:
    """The verdict of test code. It does not tell which test a call belongs to: some, all or none were answered."""
    if answer["status"] != "ok":
        return Verdict(0, 0, 1, int(answer["status"] == "timeout"), answer.get("message", ""))
    total, answered = max(1, answer["total"]), answer["answered"]
    ran = total if 0 < answered == answer["asked"] else min(answered, total - 1)
    return Verdict(answer["passed"], ran, total, answer["late"])


def judge(problem: Problem, answers: Sequence[Any]) -> Verdict:
    """The verdict on a problem's cases, from the answers to them."""
    passed = sum(right(problem, wanted, answer) for (_, wanted), answer in zip(problem.cases, answers, strict=True))
    statuses = [answer["status"] for answer in answers]
    messages = {answer.get("message", "") for answer in answers}
    broken = messages.pop() if len(messages) == 1 else ""
    return Verdict(passed, statuses.count("ok"), len(answers), statuses.count("timeout"), broken)


def whole(problem: Problem, program: str) -> str:
    """A program after the imports and helpers it may use."""
    return f"{problem.preamble}\n{program}" if problem.preamble else program


async def answers_of(scene: Scene, box: JSON, problem: Problem, program: str, inputs: Sequence[str]) -> list[Any]:
    """What a program answers to some inputs, each as in a problem's cases."""
    if not program.strip():
        return [{"status": "error", "message": "no program"}] * len(inputs)
    if not problem.name:
        return await boxed(scene, runs, box, program, [json.loads(text) for text in inputs])
    asked = [[problem.name, json.loads(text)] for text in inputs]
    return await boxed(scene, calls, box, whole(problem, program), asked)


async def boxed(scene: Scene, function: Callable[..., JSON], *args: JSON) -> JSON:
    """A call into the sandbox, which answers whatever a program does; what fails besides is infrastructure.

    Raises: Unavailable: the machine was too slow for `engine.call_timeout_s`, or the call failed.
    """
    try:
        return await scene.call(function, *args)
    except CallError as error:
        raise Unavailable("sandbox", str(error)) from error


def literal(value: Any) -> str:
    """A plain value as Python writes it, a set's items in order: the same in every process."""
    if isinstance(value, set | frozenset) and value:
        return f"{{{', '.join(sorted(map(literal, value)))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    return repr(value)


def right(problem: Problem, expected: str, answer: Any) -> bool:
    """Whether an answer is what a case expects."""
    if answer["status"] != "ok":
        return False
    wanted = json.loads(expected)
    if not problem.name:
        return " ".join(str(answer["output"]).split()) == " ".join(str(wanted).split())
    return same(decode(wanted), decode(answer["value"]))


def same(expected: Any, found: Any) -> bool:
    """Equality of plain values: by type as well, but for lists and tuples, and for int and float."""
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float | complex) and isinstance(found, int | float | complex):
        return expected == found or (isinstance(expected, float) and _near(expected, found))
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(same(expected[key], found[key]) for key in expected)
    return type(expected) is type(found) and expected == found


def _near(expected: float, found: complex) -> bool:
    if isinstance(found, complex) or abs(found) > sys.float_info.max:
        return False  # an integer may be larger than any float
    return math.isclose(expected, found, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(expected) and math.isnan(found))
