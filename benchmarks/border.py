"""A fuzz test of the sandbox's output parser: evaluation runs programs that end and write in many unusual ways.

Every ending must be recorded as the program's own failure. It must not raise an exception in the host, drop an
episode or solve one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from coterie.bench import Say
from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.environment import Split
from coterie.kernel.team import Team
from coterie.run.evaluate import evaluate_team
from coterie_worlds.coding.code import Code
from coterie_worlds.coding.problems import Problem
from coterie_worlds.coding.problems.formats import instrumented

PROGRAMS = 20_000
ROUND = 500
EXPECTED = "7301"
"""The answer that every test expects, which no program here ever gives."""
KINDS = (
    Problem("calls", "train", text="a function", name="f", cases=(("[3]", EXPECTED), ("[4]", EXPECTED))),
    Problem("runs", "train", text="a program", cases=(('"3"', f'"{EXPECTED}"'), ('"4"', f'"{EXPECTED}"'))),
    Problem("judged", "train", text="tests", name="f", check=instrumented(
        f"def check(candidate):\n    assert candidate(3) == {EXPECTED}\n    assert candidate(4) == {EXPECTED}")),
)  # fmt: skip


class Fuzzed(Code):
    """An environment whose problems are of three kinds in turn: a function's calls, whole programs, test code."""

    def task(self, split: Split, index: int) -> Problem:
        """Returns the problem at an index; the kinds take turns."""
        kind = KINDS[index % len(KINDS)]
        return replace(kind, id=f"{kind.id}-{index}")

    def count(self, split: Split) -> int | None:
        """Returns None: there are as many problems as are wanted."""
        return None


def run(say: Say) -> dict[str, Any]:
    """Plays 20,000 programs, and returns how many episodes were dropped and how many solved."""
    environment = Fuzzed.model_validate({"max_turns": 1, "time_s": 0.5, "total_s": 4.0, "max_tokens": 4096})
    outcomes: Counter[str] = Counter()
    solved = 0
    for start in range(0, PROGRAMS, ROUND):
        engine = ScriptedEngine(lambda role, prompt, rng: program(rng) if role == "coder" else "no test")
        team = Team({"coder": "p", "tester": "p"})
        evaluation = evaluate_team(environment, team, engine, split="train", tasks=ROUND, seed=start)
        outcomes.update(evaluation.outcomes)
        solved += sum(evaluation.solved)
        if start % (10 * ROUND) == 0:
            say(f"{start + ROUND} of {PROGRAMS}: {dict(outcomes)}")
    return {"programs": PROGRAMS, "dropped": outcomes["dropped"], "solved": solved}


def program(rng: Random) -> str:
    """Returns a program that ends, answers or writes in an unusual way when called, and perhaps at its top too."""
    lines = [line for _ in range(rng.randint(1, 3)) for line in rng.choice(DEEDS)(rng).splitlines()]
    inner = "\n".join(f"    {line}" for line in lines)
    given = f"    return {rng.choice(VALUES)}"
    body = f"def f(x=0, *rest, **more):\n{inner}\n{given}\n"
    where = rng.randrange(3)
    if where == 0:
        return body
    top = "\n".join(lines)
    return f"{top}\n{body}" if where == 1 else f"{body}\ntry:\n{inner}\nexcept BaseException: pass\nprint(f())\n"


def _exits(rng: Random) -> str:
    return f"import os; os._exit({rng.randrange(256)})"


def _leaves(rng: Random) -> str:
    code = rng.choice(("0", "1", str(rng.randrange(-300, 300)), "'x'", "object()", "None", "1.5", "[]", "10 ** 30"))
    return f"{rng.choice(('exit', 'quit', 'raise SystemExit'))}({code})"


def _raises(rng: Random) -> str:
    names = "KeyboardInterrupt SystemExit GeneratorExit MemoryError RecursionError StopIteration BaseException OSError"
    kind = rng.choice([*names.split(), "Bad", "Unspoken", "UnicodeError", "EOFError", "TimeoutError"])
    bad = "class Bad(BaseException):\n    def __str__(self): raise Bad\nclass Unspoken(Exception):\n"
    bad += "    def __str__(self): return '\\ud800' * 9\n    __module__ = 'builtins'"
    return f"{bad}\nraise {kind}({rng.choice(('', '5', repr('x' * 3000), '27'))})"


def _writes(rng: Random) -> str:
    drawn = bytes(rng.randrange(256) for _ in range(40))
    forged = (b'{"status": "ok"}\n', b'{"status": "returned", "value": 7301}\n', b'{"said": "{}"}\n',
              b'{"ran": 4}\n7301', b'{"ended": 3}\n', b"\n", b"\0", b"[" * 3000, drawn)  # fmt: skip
    numbers = rng.choice(("range(64)", "range(3, 64)", str((rng.randrange(64),))))
    data = repr(rng.choice(forged))
    return f"import os\nfor n in {numbers}:\n    try: os.write(n, {data})\n    except OSError: pass"


def _closes(rng: Random) -> str:
    number = rng.randrange(12)
    how = rng.choice((f"close({number})", "closerange(0, 64)", f"dup2({number}, 1)"))
    return f"import os\ntry: os.{how}\nexcept OSError: pass"


def _crashes(rng: Random) -> str:
    how = ("string_at(8)", "CDLL(None).abort()", "memset(16, 1, 9)", "CDLL(None).exit(3)", "CDLL(None)._exit(191)")
    return f"import ctypes; ctypes.{rng.choice(how)}"


def _signals(rng: Random) -> str:
    which = rng.choice(("REAL", "VIRTUAL", "PROF"))
    action = rng.choice(
        ("", "signal.signal(signal.SIGALRM, signal.SIG_IGN)", "signal.pthread_sigmask(0, range(1, 65))")
    )
    return f"import signal\n{action}\nsignal.setitimer(signal.ITIMER_{which}, 0.001)\nfor n in range(200000): pass"


def _limits(rng: Random) -> str:
    name = rng.choice(("AS", "NOFILE", "FSIZE", "STACK", "DATA", "CPU", "NPROC"))
    return f"import resource; resource.setrlimit(resource.RLIMIT_{name}, ({rng.choice((0, 1, 7))},) * 2)"


def _breaks(rng: Random) -> str:
    return rng.choice(BREAKAGES)


def _spins(rng: Random) -> str:
    return rng.choice(("while True: pass", "import time; time.sleep(99)")) if rng.random() < 0.02 else "pass"


BREAKAGES = (
    "import sys; sys.modules.clear()", "import builtins; builtins.__dict__.clear()", "import sys; sys.stdout = None",
    "import json; json.dumps = lambda *a, **k: '\"'", "import json; json.loads = None", "import sys; sys.stdin.close()",
    "import os; os.chmod('.', 0)", "import os; os.chdir('/')", "import sys; sys.setrecursionlimit(5)",
    "import gc; [one.clear() for one in gc.get_objects() if type(one) is dict]", "print('x' * 10 ** 6)",
    "import sys; sys.settrace(lambda *a: 1 / 0)", "import atexit, os; atexit.register(os._exit, 177)",
    "import sys; sys.exit = exit = None", "import os; os.write = os.read = None", "print('\\ud800')",
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "import threading; threading.Thread(target=exit).start()",
)  # fmt: skip
DEEDS = (_exits, _leaves, _raises, _writes, _closes, _crashes, _signals, _limits, _breaks, _spins)
VALUES = (
    "x", "None", "float('nan')", "10 ** 5000", "'\\ud800'", "print", "f", "[[]] * 10 ** 5", "{(): {(): ()}}",
    "b'\\xff'",
    "type('S', (int,), {'__eq__': lambda *a: True})(3)", "type('L', (list,), {'__iter__': None})()", "{1j, 2.5}",
    "(f for f in [f])", "range(10 ** 9)", "object()", "type('D', (dict,), {'items': 5})(a=1)",
)  # fmt: skip
