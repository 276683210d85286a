"""The effect of a hostile run on another run's programs on the same machine: their answers and times."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median
from typing import Any

from coterie.bench import Say
from coterie_worlds.sandbox import Box, calls

ROUNDS = 10
PROGRAMS = 12
"""Number of programs of a round, alone and then beside the other run."""
HONEST = "def f(n):\n    total = 0\n    for at in range(n):\n        total += at * at % 7\n    return [total, {number}]"
WORK = 400_000
HOSTILE = """
import itertools, sys
from coterie_worlds.sandbox import Box, calls
spin = "from threading import Thread\\ndef g():\\n    while True: pass\\ndef f():\\n"
spin += "    for _ in range(14): Thread(target=g, daemon=True).start()\\n    g()"
deeds = [
    spin, "import os\\ndef f():\\n    for n in range(10**9): os.mkdir(f'/tmp/{n}')", spin,
    "def f():\\n    held = []\\n    while True: held.append(bytearray(1 << 22))", spin,
    "import os\\ndef f():\\n    with open('/tmp/x', 'wb') as file:\\n        while True: file.write(b'0' * 65536)",
]
for number in itertools.count():
    calls(Box().json(), f"{deeds[number % len(deeds)]}\\nNUMBER = {number}", [["f", []]])
    print(number, flush=True)
"""


def run(say: Say) -> dict[str, Any]:
    """Runs honest programs alone and beside a run whose programs take what they can, in turns; returns the times."""
    alone: list[float] = []
    beside: list[float] = []
    wrong = 0
    for number in range(ROUNDS):
        wrong += _round(2 * number, alone)
        with subprocess.Popen([sys.executable, "-c", HOSTILE], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()  # the neighbour is at work
            wrong += _round(2 * number + 1, beside)
            other.kill()
        say(f"round {number + 1}: {median(alone):.3f} s alone, {median(beside):.3f} s beside")
    return {
        "wrong": wrong,
        "seconds_alone": round(median(alone), 4),
        "seconds_beside": round(median(beside), 4),
        "ratio": round(median(beside) / median(alone), 2),
    }


def _round(number: int, times: list[float]) -> int:
    wrong = 0
    wanted = sum(at * at % 7 for at in range(WORK))
    for at in range(PROGRAMS):
        began = time.perf_counter()
        mine = number * PROGRAMS + at
        answers = calls(Box().json(), HONEST.replace("{number}", str(mine)), [["f", [WORK]]])
        times.append(time.perf_counter() - began)
        wrong += answers != [{"status": "ok", "value": [wanted, mine]}]
    return wrong
