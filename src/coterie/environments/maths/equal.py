r"""Which answers are equal: numbers exactly, everything else by `math-verify`, in a process that may be killed.

    boxed(r"so it is \boxed{18\text{ pens}}")    # r"18\text{ pens}"
    same("18", "$18.00")                         # True

`math-verify` alone takes 1\,000 for 0, 17 = 18 for 18 and 1/2^99 for 1/2^98, reads a number out of what it cannot read,
and on `10^{10^{10}}` it never comes back. So: whole numbers, decimals and fractions are compared here, as fractions;
what it read must be all that was written; the kinds must be the same (a number, a set, an interval, a tuple, …); and
an answer that takes too long, or too much memory, is wrong.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from typing import IO

from coterie.errors import ConfigError, Unavailable
from coterie.kernel.calls import InThread

LONGEST = 400
"""Characters of an answer."""
DIGITS = 400
"""Of a number."""
LIMIT_S = 5.0
"""Seconds that a comparison may take."""
START_S = 120.0
"""Seconds that the process may take to start."""
MEMORY_MB = 2048
MARKS = re.compile(r"\\boxed\s*\{|<answer>|^[ \t]*####", re.MULTILINE)
SEPARATOR = r"(?:,|\{,\}|\\,|\\;|\\ |\\!|[  ])"
GROUPED = re.compile(rf"([-+]?\d{{1,3}})((?:{SEPARATOR}\d{{3}})+)(\.\d+)?")
PLAIN = re.compile(r"([-+]?\d+(?:\.\d*)?|[-+]?\.\d+)(?:[eE]([-+]?\d{1,3}))?")
FRACTION = re.compile(r"([-+]?)(?:\\[dt]?frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d+)\s*/\s*(\d+))")
UNIT = re.compile(r"(?:\\(?:text|mathrm|textrm|mbox)\s*\{[^{}]*\}|\^\s*\{?\s*\\circ\s*\}?|\\%|%)\s*$")
UNIT_WORD = re.compile(r"(?<=\d)\s+[a-z]{2,20}\.?$", re.IGNORECASE)
NAMED = re.compile(r"^\s*[a-zA-Z](?:_\w)?\s*=\s*(?=[^=]*$)")
TYPE = re.compile(r"\\(?:text|mathrm|textrm|textbf|mbox)(?=\s*\{)")
BASE = re.compile(r"\d_\{?\d")
"""A number to a base."""
WORD = re.compile(r"[^\W\d]\w{2,}(?:[\W_]+\w+)*|\{[^{}\\]{3,}\}")
"""A word, or several: to a reader of formulas it would be a product of letters in any order."""
DROPPED = re.compile(r"\\(?:left|right|displaystyle|!)(?![a-zA-Z])|\*\*")


def boxed(text: str) -> str:
    r"""The answer that a text ends with: in its last \boxed{...}, <answer> or line with ####; "" where there is none.

    What was thought before `</think>` is no answer, and neither is a box that is never closed.
    """
    text = text.rpartition("</think>")[2]
    marks = list(MARKS.finditer(text))
    if not marks:
        return ""
    mark, rest = marks[-1][0], text[marks[-1].end() :]
    if mark.endswith("####"):
        return rest.partition("\n")[0].strip()
    if mark == "<answer>":
        inside, end, _ = rest.partition("</answer>")
        return inside.strip() if end else ""
    depth = 1
    for at, sign in enumerate(rest):
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return rest[:at].strip()
    return ""


def normal(text: str) -> str:
    """An answer without what says nothing: dollar signs, units, `x =`, a full stop."""
    text = text.strip().strip("*").strip()
    text = DROPPED.sub("", text).replace("−", "-").replace("\\mathrm{e}", "e").replace("\\$", "")  # noqa: RUF001
    text = text.strip().strip("$").strip().removesuffix(".").strip()
    text = NAMED.sub("", text)
    while shorter := UNIT.sub("", text).strip():
        if shorter == text:
            break
        text = shorter
    return UNIT_WORD.sub("", text)


def number(text: str) -> Fraction | None:
    r"""The number that a text is: 18, 1,000, 1\,000, .5, 2e3, 3/4, \frac{3}{4}; None where it is anything else."""
    text = text.strip()
    if len(text) > DIGITS:
        return None
    if match := GROUPED.fullmatch(text):
        return Fraction(match[1] + re.sub(r"\D", "", match[2]) + (match[3] or ""))
    if match := PLAIN.fullmatch(text):
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0)
    if match := FRACTION.fullmatch(text):
        above, below = int(match[2] or match[4]), int(match[3] or match[5])
        return Fraction(-above if match[1] == "-" else above, below) if below else None
    return None


def alike(one: str, other: str) -> bool:
    """Whether two answers are the same number, or the same words."""
    left, right = number(normal(one)), number(normal(other))
    if left is not None or right is not None:
        return left == right
    return words(one) == words(other)


def words(text: str) -> str:
    """An answer as its bare signs: without blanks, capital letters, and what only sets type."""
    return "".join(TYPE.sub("", text).replace("{", "").replace("}", "").split()).casefold()


@InThread
def same(gold: str, answer: str) -> bool:
    """Whether an answer is the gold one.

    Raises:
        Unavailable: no process could be had to compare in.
    """
    if not answer.strip() or max(len(gold), len(answer)) > LONGEST or "\0" in answer:
        return False
    if "%" in answer and "%" not in gold:
        return False
    left, right = normal(gold), normal(answer)
    numbers = number(left), number(right)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if words(left) == words(right):
        return True
    if "=" in right or any(BASE.search(one) or WORD.fullmatch(TYPE.sub("", one)) for one in (left, right)):
        return False
    return _verified(left, right)


@lru_cache(maxsize=65_536)
def _verified(gold: str, answer: str) -> bool:
    return verifiers().verified(gold, answer)


def unequal_golds(golds: Iterable[str]) -> dict[int, str]:
    """Of gold answers, those that are not equal to themselves: nobody could ever be right.

    Returns:
        by place, what was written.
    """
    return {at: gold for at, gold in enumerate(golds) if not same(gold, gold)}


def check() -> None:
    """Raises ConfigError: `math-verify` is not installed."""
    if find_spec("math_verify") is None:
        raise ConfigError("answers that are no plain numbers need math-verify: pip install 'coterie[maths]'")


class Verifiers:
    """Processes that compare, kept warm: one that does not come back is killed, and its answer is no."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def verified(self, gold: str, answer: str) -> bool:
        """What `math-verify` finds; False where it takes too long."""
        check()
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or self._started()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps([gold, answer]) + "\n")
            process.stdin.flush()
            line = _line(process.stdout, LIMIT_S)
        except OSError:
            line = ""
        if not line.endswith("\n"):
            _end(process)
            return False
        with self._lock:
            self._idle.append(process)
        return json.loads(line)

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from coterie.environments.maths.verifier import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout
        if _line(process.stdout, START_S) != "ready\n":
            _end(process)
            raise Unavailable("maths", "the process that compares answers does not start")
        return process

    def close(self) -> None:
        """Ends them all."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            _end(process)


@lru_cache
def verifiers() -> Verifiers:
    """Those of this process."""
    return Verifiers()


def _line(stream: IO[str], limit_s: float) -> str:
    """The next line, which comes whole; "" where none does in time."""
    ready, _, _ = select.select([stream], [], [], limit_s)
    return stream.readline() if ready else ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream:
                stream.close()
