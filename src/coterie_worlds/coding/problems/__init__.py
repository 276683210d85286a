"""Programming problems: what they are, and whether a program solves one.

A problem is told to roles as text and judged by hidden tests: arguments and values of a function,
standard input and output of a program, or test code. Where problems come from: `embedded.py` makes
them, `data.py` reads them. Programs run in the sandbox alone, and values are compared out here.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.errors import CallError, Unavailable
from coterie.kernel.calls import InThread
from coterie.kernel.environment import Task
from coterie.kernel.scene import JSON, Reply, Scene
from coterie_worlds.sandbox import Answer, calls, judged, runs, same, written

FENCE = re.compile(r"[ \t]*(`{3,}(?!`)|~{3,}(?!~))([^`]*)")
READS_INPUT = re.compile(r"\b(?:input|stdin|fileinput)\b|\b(?:open|read)\(0")


@dataclass(frozen=True, slots=True)
class Problem(Task):
    """One problem.

    text: what roles are told. name: the function that is asked for; "" where a whole program reads
    standard input. cases: hidden tests as pairs of JSON: a list of arguments and the value, as
    `sandbox.encode` writes them, or two strings. check: test code that defines `check(candidate)`,
    instead of cases. preamble: imports and helpers that stand before a program. solution: a program
    that solves it; "" where none is known. mutants: programs that nearly do. libraries: packages it needs.
    """

    text: str = ""
    name: str = ""
    cases: tuple[tuple[str, str], ...] = ()
    check: str = ""
    preamble: str = ""
    solution: str = ""
    mutants: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramVerdict:
    """The result of a program on the hidden tests.

    ran: tests in which it answered at all. timeouts: tests in which its time was over. broken: what the
    interpreter said, or which limit was met, where that is all that every test found.
    """

    passed: int
    ran: int
    total: int
    timeouts: int = 0
    broken: str = ""

    @property
    def share(self) -> float:
        """Share of tests passed."""
        return self.passed / self.total if self.total else 0.0

    @property
    def solved(self) -> bool:
        """True if every test passed, and there was one."""
        return 0 < self.total == self.passed


def program_of(reply: Reply, name: str = "") -> str:
    """Returns the program in a reply: of its fenced blocks the last that fits, or all of it; "" where it was cut.

    A block fits that defines the function `name`, or a class `Solution`; without a name one that reads input. What
    shows how to use a program does not hide it.
    """
    if reply.finish != "stop":
        return ""
    text = reply.text.replace("\r\n", "\n").replace("\r", "\n")
    candidates = blocks(text)
    fits = re.compile(rf"\b(?:def[ \t]+{re.escape(name)}|class[ \t]+Solution)\b") if name else READS_INPUT
    fitting = [block for block in candidates if fits.search(block)]
    return (fitting or candidates or [text])[-1]


def blocks(text: str) -> list[str]:
    """Returns a text's fenced blocks, without the indentation they share; one that is never closed goes to the end."""
    contents: list[list[str]] = []
    fence = ""
    for line in text.split("\n"):
        mark = FENCE.fullmatch(line)
        if fence and mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        elif fence:
            contents[-1].append(line)
        elif mark:
            fence = mark[1]
            contents.append([])
    return [textwrap.dedent("\n".join([*lines, ""])) for lines in contents]


async def examine(
    scene: Scene, box: JSON, problem: Problem, program: str, extra: Sequence[tuple[str, str]] = ()
) -> tuple[ProgramVerdict, list[Any]]:
    """Returns a program's verdict on a problem's hidden tests, and its answers on more cases."""
    if problem.check:
        function, *args = question(problem, program)
        verdict = verdict_of(await boxed(scene, function, box, *args))
        return verdict, await answers_of(scene, box, problem, program, extra) if extra else []
    answers = await answers_of(scene, box, problem, program, [*problem.cases, *extra])
    count = len(problem.cases)
    return judge(answers[:count]), answers[count:]


def verdict_of(answer: Any) -> ProgramVerdict:
    """Returns the verdict of test code.

    It does not tell which test a call belongs to: some, all or none were answered.
    """
    if answer["status"] != "ok":
        return ProgramVerdict(0, 0, 1, int(answer["status"] == "timeout"), said_of(answer))
    total, answered = max(1, answer["total"]), answer["answered"]
    ran = total if 0 < answered == answer["asked"] else min(answered, total - 1)
    return ProgramVerdict(answer["passed"], ran, total, answer["late"])


def said_of(answer: Any) -> str:
    """Returns the message of a failure; nothing if an answer is none."""
    return answer.get("message", "") or LIMITS.get(answer["status"], "")


LIMITS = {"memory": "more than environment.memory_mb", "output": "more than environment.output_kb"}
"""Settings that a program went beyond, by the status of its answer."""


def judge(answers: Sequence[Any]) -> ProgramVerdict:
    """Returns the verdict on a problem's cases, from what `tried` gave for them."""
    passed = sum(answer["right"] for answer in answers)
    statuses = [answer["status"] for answer in answers]
    messages = {said_of(answer) for answer in answers}
    broken = messages.pop() if len(messages) == 1 else ""
    return ProgramVerdict(passed, statuses.count("ok"), len(answers), statuses.count("timeout"), broken)


def whole(problem: Problem, program: str) -> str:
    """Returns a program after the imports and helpers it may use."""
    return f"{problem.preamble}\n{program}" if problem.preamble else program


async def answers_of(
    scene: Scene, box: JSON, problem: Problem, program: str, cases: Sequence[tuple[str, str]]
) -> list[Any]:
    """Returns a program's answers on some cases, as `tried` gives them."""
    if not program.strip():
        return [{"status": "error", "message": "no program", "right": False}] * len(cases)
    return await boxed(scene, tried, box, problem.name, whole(problem, program), list(map(list, cases)))


def question(problem: Problem, program: str) -> tuple[Callable[..., JSON], *tuple[JSON, ...]]:
    """Returns the function that tries a program on a problem's hidden tests, and what it takes after a box."""
    if problem.check:
        return judged, problem.check, whole(problem, program), problem.name
    return tried, problem.name, whole(problem, program), list(map(list, problem.cases))


@InThread
def tried(box: dict[str, Any], name: str, program: str, cases: list[list[str]]) -> list[Answer]:
    """Returns a program's answers on some cases. An episode's log keeps this, and not all that a program can write.

    Args:
        name: of its function; "" of a whole program.
        cases: as a problem's.

    Returns:
        each one's status, whether it is `right`, the `message` of a failure, and of a wrong answer as much as is
        `shown`: as Python writes it, or as it was written.
    """
    given = [json.loads(one) for one, _ in cases]
    answers = calls(box, program, [[name, args] for args in given]) if name else runs(box, program, given)
    return [_told(name, wanted, answer) for (_, wanted), answer in zip(cases, answers, strict=True)]


def _told(name: str, wanted: str, answer: Answer) -> Answer:
    if right(name, wanted, answer):
        return {"status": "ok", "right": True}
    told = {key: answer[key] for key in ("status", "message", "kind") if key in answer}
    shown = {"shown": shown_of(name, answer)} if answer["status"] == "ok" else {}
    return {**told, "right": False, **shown}


def shown_of(name: str, answer: Answer) -> str:
    """Returns the beginning of an answer, as Python writes it, or as a program wrote it."""
    return (written(answer["value"]) if name else answer["output"])[: LONGEST_SHOWN + 1]


LONGEST_SHOWN = 600
"""Maximum characters of what somebody wrote that anybody is shown."""


async def boxed(scene: Scene, function: Callable[..., JSON], *args: JSON) -> JSON:
    """Calls a function in the sandbox, which answers whatever a program does; what fails besides is infrastructure.

    Raises:
        Unavailable: no sandbox could be had.
    """
    try:
        return await scene.call(function, *args)
    except CallError as error:
        raise Unavailable("sandbox", str(error)) from error


def right(name: str, expected: str, answer: Answer) -> bool:
    """Returns True if an answer is what a case expects. name: of the function; "" of a whole program."""
    if answer["status"] != "ok":
        return False
    wanted = json.loads(expected)
    return same(wanted, answer["value"]) if name else agrees(str(wanted), str(answer["output"]))


def agrees(expected: str, printed: str) -> bool:
    """Returns True if an output is the expected one, as contests judge: by words, numbers with a fraction to 1e-6."""
    wanted, words = expected.split(), printed.split()
    return len(wanted) == len(words) and all(map(_same_word, wanted, words))


def _same_word(wanted: str, word: str) -> bool:
    if wanted == word:
        return True
    if not FRACTION.fullmatch(wanted) or not NUMBER.fullmatch(word):
        return False
    return math.isclose(float(wanted), float(word), rel_tol=1e-6, abs_tol=1e-6)


FRACTION = re.compile(r"[+-]?(?=\.?\d)\d{0,40}\.\d{0,40}(?:[eE][+-]?\d{1,4})?|[+-]?\d{1,40}[eE][+-]?\d{1,4}")
NUMBER = re.compile(r"[+-]?(?=\.?\d)\d{0,400}\.?\d{0,400}(?:[eE][+-]?\d{1,4})?")
