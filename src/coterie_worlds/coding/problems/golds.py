"""Runs each row's own solution on its tests before the row is used, in parallel and with a progress line.

Outcomes are cached in the user's cache folder. The key is the content of the problem, its solution, the limits and
this module's version. An outcome that depends on a time limit is not cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from coterie.environments.published.data import LONGEST_REASON
from coterie.kernel.safe import one_line
from coterie_worlds.coding.problems import Problem, ProgramVerdict, judge, question, verdict_of
from coterie_worlds.sandbox import Box
from coterie_worlds.sandbox.backends import missing

VERSION = 2
"""Version of the outcomes that are kept."""
SOON_S = 3.0
"""Seconds after which a person is told how far it is, and between such messages."""


def failing(problems: Sequence[Problem], box: Box) -> tuple[str, dict[int, str]]:
    """Finds the problems whose solutions fail, and the reasons.

    Returns:
        why none was tried, or nothing; and what came of those that fail, by place.
    """
    asked = {at: _key(problem, box) for at, problem in enumerate(problems) if problem.solution}
    if not asked:
        return "no row has one", {}
    if lacking := missing(box.backend):
        return lacking, {}
    known = _known()
    waiting = [at for at, key in asked.items() if key not in known]
    began = told = time.monotonic()
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        results = pool.map(lambda at: solves(problems[at], problems[at].solution, box), waiting)
        for done, (at, verdict) in enumerate(zip(waiting, results, strict=True), 1):
            known[asked[at]] = "" if verdict.solved else _why(verdict)
            if not verdict.timeouts:
                _keep(asked[at], known[asked[at]])
            if (now := time.monotonic()) - told > SOON_S:
                told = now
                left = (now - began) / done * (len(waiting) - done)
                print(f"{done} of {len(waiting)} solutions tried, {left:.0f} s left", file=sys.stderr)  # noqa: T201
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits for those that run, not for all
    return "", {at: known[key] for at, key in asked.items() if known[key]}


def _why(verdict: ProgramVerdict) -> str:
    """Returns the reason why a solution failed, in one line, and which setting may mend it."""
    if verdict.timeouts:
        return f"{verdict.timeouts} of {verdict.total} tests took longer than environment.time_s"
    if verdict.broken:
        return one_line(verdict.broken)[:LONGEST_REASON]
    return f"{verdict.passed} of {verdict.total} tests passed"


def solves(problem: Problem, program: str, box: Box) -> ProgramVerdict:
    """Returns a program's verdict on a problem's hidden tests, outside any episode."""
    function, *args = question(problem, program)
    answer = function(box.json(), *args)
    return verdict_of(answer) if problem.check else judge(answer)


def _key(problem: Problem, box: Box) -> str:
    what = [VERSION, box.json(), problem.name, problem.cases, problem.check, problem.preamble, problem.solution]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coterie" / "solutions.jsonl"


def _known() -> dict[str, str]:
    """Returns the outcomes that are kept, by key: the reason of a failure, or "" for a solution that solves."""
    try:
        lines = _file().read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    known: dict[str, str] = {}
    for line in lines:
        with suppress(ValueError):  # a file of another version, or one cut short
            key, reason = json.loads(line)
            known[str(key)] = str(reason)
    return known


def _keep(key: str, reason: str) -> None:
    """Keeps an outcome; a folder that cannot be written costs the time of trying again."""
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        with _file().open("a", encoding="ascii") as file:
            file.write(json.dumps([key, reason]) + "\n")
    except OSError:
        return
