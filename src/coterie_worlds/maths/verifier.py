"""The separate process that compares answers with `math-verify` under limits."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sys
from typing import Any

from coterie_worlds.maths.equal import LIMIT_S, MEMORY_MB

CPU_S = 2
"""Seconds of a processor that a comparison may take."""
EQUAL = 100
"""The exit code of a process that found two answers equal."""
CLOSE = 1e-9
"""Maximum difference of numbers that are not exact, as a share of the larger."""
KINDS = {
    "FiniteSet": "set", "Interval": "interval", "Union": "interval", "Tuple": "tuple", "Equality": "equation",
    "And": "relation", "Or": "relation", "StrictLessThan": "relation", "LessThan": "relation",
    "StrictGreaterThan": "relation", "GreaterThan": "relation", "Unequality": "relation",
}  # fmt: skip
"""Kinds of the objects that sympy makes of answers; all else is a number, a formula or a word."""


def serve() -> None:
    """Answers pairs of a gold answer and another, a line each, until there are no more.

    Each is compared in a process of its own, which has a few seconds of a processor: whatever a library's compiled
    code is at, the kernel ends it, and the next comparison need not wait for a start.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    equal("2\\pi", "\\pi + \\pi")  # what the libraries load at the first comparison is loaded before they fork
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        print(json.dumps(apart(gold, answer)), file=answers, flush=True)


def apart(gold: str, answer: str) -> bool:
    """Returns True if two answers are equal, found by a fork of this process; False if that takes too long."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EQUAL
    verdict = False
    with contextlib.suppress(BaseException):  # of a model's words, anything: then it is not equal
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        verdict = equal(gold, answer)
    os._exit(EQUAL if verdict else 0)


def equal(gold: str, answer: str) -> bool:
    """Returns True if two answers are read whole, are of one kind, and are equal."""
    from math_verify import verify  # pyright: ignore[reportMissingImports]

    left, right = read(gold), read(answer)
    if left is None or right is None or kind(left) != kind(right):
        return False
    if not verify(left, right, timeout_seconds=round(LIMIT_S), raise_on_error=True):
        return False
    return close(left, right)


def read(text: str) -> Any:
    """Returns sympy's object for an answer; None if not the whole of the answer was read."""
    from math_verify import LatexExtractionConfig, parse  # pyright: ignore[reportMissingImports]

    found = parse(
        f"${text}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=round(LIMIT_S), raise_on_error=True
    )
    if len(found) < 2 or bare(found[1]) != bare(text):
        return None
    return found[0]


def bare(text: str) -> str:
    """Returns an answer without blanks, and in the one form that the library makes of some signs."""
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"\s(?:or|and)\s|\\text\s*\{\s*(?:or|and)\s*\}", ",", text)
    return re.sub(r"\s|\\[,;! ]|~", "", text)


def kind(value: Any) -> str:
    """Returns the kind of an object: number, set, interval, tuple, equation, relation or matrix."""
    name = type(value).__name__
    return "matrix" if "Matrix" in name else KINDS.get(name, "number")


def close(left: Any, right: Any) -> bool:
    """Returns False for numbers that are equal only as they were rounded, such as 1/2^99 and 1/2^98; else True."""
    numbers = [getattr(value, "is_number", False) and getattr(value, "is_finite", False) for value in (left, right)]
    if not all(numbers):
        return True
    first, second = complex(left.evalf(30)), complex(right.evalf(30))
    return abs(first - second) <= CLOSE * max(abs(first), abs(second))
