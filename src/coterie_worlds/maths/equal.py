r"""Comparison of answers: numbers exactly, everything else with `math-verify` in a separate process with limits.

    boxed(r"so it is \boxed{18\text{ pens}}")    # r"18\text{ pens}"
    same("18", "$18.00")                         # True

`math-verify` alone takes 1\,000 for 0, 17 = 18 for 18 and 1/2^99 for 1/2^98. It extracts a number from text that it
cannot parse, evaluates expressions that were only copied from the question, and never returns on `10^{10^{10}}`. So
this module compares whole numbers, decimals and fractions as fractions. If the gold answer is one of them, no other
kind of answer is right. `math-verify` must parse the whole answer, and both kinds must be the same (a number, a set, an
interval, a tuple, …). An unevaluated expression, a formula that stands in the question, a second answer or another unit
is wrong, and so is an answer that takes too much time or memory.
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
from coterie.kernel.once import Once
from coterie_worlds.maths.units import fits

LONGEST = 400
"""Maximum characters of an answer."""
DIGITS = 400
"""Maximum characters of a number."""
LIMIT_S = 60.0
"""Seconds that a comparison may take on a busy machine. What ends one is `CPU_S` of the verifier: what others compute
beside it does not make a right answer wrong."""
START_S = 120.0
"""Seconds that the process may take to start."""
MEMORY_MB = 2048
MARKS = re.compile(r"\\boxed\s*\{|<answer>|^[ \t]*####", re.MULTILINE)
SEPARATOR = r"(?:,|\{,\}|\\,|\\;|\\ |\\!|[  ])"
GROUPED = re.compile(rf"([-+]?\d{{1,3}})((?:{SEPARATOR}\d{{3}})+)(\.\d+)?")
PLAIN = re.compile(r"([-+]?\d+(?:\.\d*)?|[-+]?\.\d+)(?:[eE]([-+]?\d{1,3}))?")
FRAC = r"\\[dt]?frac\s*(?:\{\s*([-+]?\d+)\s*\}\s*\{\s*(\d+)\s*\}|\s*(\d)\s*(\d))"
FRACTION = re.compile(rf"([-+]?)\s*(?:(\d+)\s*)?{FRAC}|([-+]?)(\d+)\s*/\s*(\d+)")
r"""Fractions: \frac{3}{4}, \frac34, 1\frac{3}{4}, 3/4."""
POWER = re.compile(r"([-+]?\d+(?:\.\d*)?)\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*([-+]?\d{1,3})\s*\}|(\d))")  # noqa: RUF001
UNIT = re.compile(r"(?:\\(?:text|mathrm|textrm|mbox)\s*\{([^{}\d]*)\}|\^\s*\{?\s*\\circ\s*\}?|\\%|%)\s*$")
UNIT_WORD = re.compile(r"(?<=\d)((?:\s+[a-z]{2,20}){1,3})\.?$", re.IGNORECASE)
NO_UNIT = re.compile(
    r"\b(?:or|and|is|are|not|if|either|maybe|nor|but|minus|plus|times|over|squared|cubed|pi|[ei]|half|halves|"
    r"no|none|false|wrong|negative|never|twice|thrice|double|pairs?|zero|one|two|three|four|five|six|seven|eight|nine|ten|"
    r"(?:hundred|thousand|million|billion|trillion|dozen|score|percent|factorial|third|quarter|tenth)s?)\b",
    re.IGNORECASE,
)
"""Words that say more than what a number counts: another answer, or another number."""
FORMULA = re.compile(r"[\\^+*/-]")
SPELLED = re.compile(r"[\s${}]|\\(?:left|right|!|,|;)")
"""Signs in which two spellings of one formula may differ."""
OPEN = re.compile(r"\\(?:int|sum|prod|lim|gcd|max|min|d?t?binom|det|operatorname)(?![a-zA-Z])")
"""LaTeX commands that leave something to be worked out."""
ENDLESS = re.compile(r"\^\s*(?:\{[^{}]*[\d)]\s*\^|\(?\s*\d+\s*\^|\{?\s*\d{6})|!\s*[)}\]]*\s*!|\d{5}\s*!")
"""A tower of powers, a factorial of a factorial, a power or factorial of millions of digits: seconds to work out."""
PERCENT = re.compile(r"%|percent", re.IGNORECASE)
NAMED = re.compile(r"^\s*[a-zA-Z](?:_\w)?\s*=\s*(?=[^=]*$)")
TYPE = re.compile(r"\\(?:text|mathrm|textrm|textbf|mbox)(?=\s*\{)")
BETWEEN = re.compile(r"(?<=\d)\s+(?=\d)")
BASE = re.compile(r"\d_\{?\d")
"""A number to a base."""
WORD = re.compile(r"[^\W\d]\w{2,}(?:\W+\w+)*|[A-Z]{2}|no|\{[^{}\\]{3,}\}")
"""A word, or several: to a reader of formulas it would be a product of letters in any order."""
DROPPED = re.compile(r"\\(?:left|right|displaystyle|!)(?![a-zA-Z])|\*\*")


def boxed(text: str) -> str:
    r"""Returns the answer that a text ends with: in its last \boxed{...}, <answer> or line with ####; "" if none.

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
    """Returns an answer without what says nothing: dollar signs, units, `x =`, a full stop."""
    return _parted(text)[0]


def _parted(text: str) -> tuple[str, str]:
    """Returns an answer without what says nothing, and the words of its unit, or none."""
    text = text.strip().strip("*").strip()
    text = DROPPED.sub("", text).replace("−", "-").replace("\\mathrm{e}", "e").replace("\\$", "")  # noqa: RUF001
    text = text.strip().strip("$").strip().removesuffix(".").strip()
    text = NAMED.sub("", text)
    unit = ""
    while (match := UNIT.search(text) or UNIT_WORD.search(text)) and (shorter := text[: match.start()].strip()):
        word = next((group for group in match.groups() if group), match[0])
        if NO_UNIT.search(word):
            break
        text, unit = shorter, f"{word} {unit}"
    return text, unit.replace("\\circ", "°")


def number(text: str) -> Fraction | None:
    r"""Returns the number that a text is: 18, 1,000, 1\,000, .5, 2e3, 3/4, \frac{3}{4}, 2 \times 10^3; None if none.

    6/2 is none: it has not been worked out.
    """
    text = text.strip()
    if len(text) > DIGITS:
        return None
    if match := GROUPED.fullmatch(text):
        return Fraction(match[1] + re.sub(r"\D", "", match[2]) + (match[3] or ""))
    if match := PLAIN.fullmatch(text):
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0)
    if match := POWER.fullmatch(text):
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or match[3])
    match = FRACTION.fullmatch(text)
    return _fraction(match) if match else None


def _fraction(match: re.Match[str]) -> Fraction | None:
    """Returns the value of a fraction or a mixed number; None if it is malformed or comes to a whole number."""
    sign, whole, above, below = match[1], match[2], match[3] or match[5], match[4] or match[6]
    if above is None:
        sign, above, below = match[7], match[8], match[9]
    if not int(below) or (whole and not 0 < int(above) < int(below)):
        return None
    part = int(whole or 0) + Fraction(int(above), int(below))
    return None if part.denominator == 1 else -part if sign == "-" else part


def alike(one: str, other: str) -> bool:
    """Returns True if two answers are the same number, or the same words."""
    left, right = number(normal(one)), number(normal(other))
    if left is not None or right is not None:
        return left == right
    return words(one) == words(other)


def words(text: str) -> str:
    """Returns an answer's bare signs: no blanks but between digits, no capital letters, nothing that only sets type."""
    text = BETWEEN.sub("_", TYPE.sub("", text).replace("{", "").replace("}", ""))
    return "".join(text.split()).casefold()


@InThread
def same(gold: str, answer: str, question: str = "") -> bool:
    """Returns True if an answer is equal to the gold one.

    Args:
        question: which words may stand behind an answer as its unit, see `units`; "": not known.

    Raises:
        Unavailable: no process could be had to compare in.
    """
    if not answer.strip() or max(len(gold), len(answer)) > LONGEST or "\0" in answer:
        return False
    (left, its), (right, unit) = _parted(gold), _parted(answer)
    percent = "%" in answer and "%" not in gold and not PERCENT.search(question)
    if percent or not fits(unit, its, question):
        return False
    wanted = number(left)
    if wanted is not None or words(left) == words(right):
        return wanted is None or number(right) == wanted
    if _copied(right, question) and _squeezed(left) != _squeezed(right):
        return False
    unworked = set(OPEN.findall(right)) - set(OPEN.findall(left))
    if unworked or "=" in right or ENDLESS.search(right) or any(_bare(one) for one in (left, right)):
        return False
    return _verified(left, right)


def _copied(answer: str, question: str) -> bool:
    """Returns True if an answer is a formula that stands in the question: it may be equal, but nothing was done."""
    return bool(FORMULA.search(answer)) and _squeezed(answer) in _squeezed(question)


def _squeezed(text: str) -> str:
    return SPELLED.sub("", text.replace("dfrac", "frac").replace("tfrac", "frac"))


def _bare(text: str) -> bool:
    """Returns True if an answer is no formula: a word, or a number to a base."""
    return bool(BASE.search(text) or WORD.fullmatch(TYPE.sub("", text)))


@lru_cache(maxsize=65_536)
def _verified(gold: str, answer: str) -> bool:
    return verifiers().verified(gold, answer)


def unequal_golds(golds: Iterable[str]) -> dict[int, str]:
    """Finds gold answers that are not equal to themselves: nobody could ever be right.

    Returns:
        by place, what was written.
    """
    return {at: gold for at, gold in enumerate(golds) if not same(gold, gold)}


def check() -> None:
    """Raises ConfigError if `math-verify` is not installed."""
    if find_spec("math_verify") is None:
        raise ConfigError("answers that are no plain numbers need math-verify: pip install 'coterie[maths]'")


class Verifiers:
    """A pool of processes that compare answers: one that does not come back is killed, and its answer is no."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def verified(self, gold: str, answer: str) -> bool:
        """Returns True if `math-verify` finds two answers equal; False if it takes too long."""
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
            [sys.executable, "-P", "-c", "from coterie_worlds.maths.verifier import serve; serve()"],
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
        """Ends all processes that wait for work."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            _end(process)


@Once
def verifiers() -> Verifiers:
    """Returns the pool of this process."""
    return Verifiers()


def _line(stream: IO[str], limit_s: float) -> str:
    """Returns the next line, which comes whole; "" if none does in time."""
    ready, _, _ = select.select([stream], [], [], limit_s)
    return stream.readline() if ready else ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream:
                stream.close()
