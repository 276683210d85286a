"""Right programs are right, in the styles that people write, and their mutants wrong."""

from __future__ import annotations

import json

import pytest

from coterie.kernel.scene import Reply
from coterie_worlds.coding.problems import judge, program_of, right, tried, verdict_of
from coterie_worlds.coding.problems.formats import instrumented
from coterie_worlds.sandbox import Box, calls, encode, judged, runs
from coterie_worlds.sandbox.backends import missing
from tests.right_programs import INPUTS, Written, answers, replies

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
BOX = Box(time_s=5.0).json()
REPLIES = replies()


def solved(written: str, name: str) -> bool:
    cases = [[json.dumps(given), json.dumps(wanted)] for given, wanted in zip(INPUTS, answers(name), strict=True)]
    return judge(tried(BOX, "", program_of(Reply("coder", written)), cases)).solved


def test_there_are_a_hundred():
    assert len(REPLIES) == len({one.reply for one in REPLIES}) == 100


@pytest.mark.slow
@pytest.mark.parametrize("written", REPLIES, ids=lambda one: one.name)
def test_a_right_program_is_right_and_its_mutant_wrong(written: Written):
    problem = written.name.split(", ")[-2]
    assert solved(written.reply, problem)
    assert not solved(written.wrong, problem)


def test_what_one_test_leaves_behind_the_next_does_not_see():
    program = (
        "import os, sys, threading\nprint(os.listdir('.'), sys.getrecursionlimit(), os.getcwd(), sys.argv)\n"
        "open('left', 'w').close()\nos.makedirs('a/b')\nsys.setrecursionlimit(77)\nos.chdir('a')\n"
        "threading.Thread(target=__import__('time').sleep, args=(9,), daemon=True).start()"
    )
    first, second = runs(BOX, program, ["", ""])
    assert first == second
    assert first["output"].startswith("[] ")


ENDINGS = {
    "a stream of its own": "out = open(1, 'w')\nout.write('1\\n')",
    "a stream by its number": "import os\nout = os.fdopen(1, 'w')\nprint(1, file=out)",
    "the stream there was": "import sys\nprint(1, file=sys.__stdout__)",
    "a stream that was replaced": "import sys, io\nout = sys.stdout\nsys.stdout = io.StringIO()\nout.write('1\\n')",
    "a last word": "class A:\n    def __del__(self): print(1)\na = A()",
    "an object for a stream": "import sys\nclass O:\n    def write(self, text): old.write(text)\n"
                              "    def flush(self): old.flush()\nold, sys.stdout = sys.stdout, O()\nprint(1)",
    "a thread's": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print(1))).start()",
}  # fmt: skip


@pytest.mark.parametrize("how", ENDINGS)
def test_nothing_that_was_written_is_lost(how):
    assert runs(BOX, ENDINGS[how], [""]) == [{"status": "ok", "output": "1\n"}]


def test_five_megabytes_go_in_and_come_out():
    text = "0123456789" * 500_000
    (answer,) = runs(BOX, "text = input()\nprint(text)", [text])
    assert answer == {"status": "ok", "output": text + "\n"}
    small = Box(output_kb=100, stdin_kb=1 << 13).json()
    assert runs(small, "print(input())", [text]) == [{"status": "output"}]


VALUES = [
    ("from collections import Counter\ndef f(): return Counter('aab')", {"a": 2, "b": 1}, {"a": 2, "b": 2}),
    ("from collections import defaultdict\ndef f():\n    d = defaultdict(list)\n    d[1].append(2)\n    return d",
     {1: [2]}, {1: [3]}),
    ("from collections import OrderedDict\ndef f(): return OrderedDict([(2, 1), (1, 2)])", {1: 2, 2: 1}, {1: 2}),
    ("from collections import namedtuple\ndef f(): return namedtuple('P', 'x y')(1, 2)", (1, 2), (2, 1)),
    ("from collections import deque\ndef f(): return deque([1, 2])", [1, 2], [2, 1]),
    ("def f(): return range(3)", [0, 1, 2], [0, 1]),
    ("def f(): return {1: 'a'}.keys()", [1], [2]),
    ("def f(): return frozenset({(1, 2)})", {(1, 2)}, {(2, 1)}),
    ("import enum\nclass C(enum.IntEnum):\n    A = 3\ndef f(): return C.A", 3, 4),
    ("class L(list): pass\ndef f(): return L([1])", [1], []),
    ("def f(): return {at: at * at for at in range(5000)}", {at: at * at for at in range(5000)}, {}),
    ("def f(): return set(range(5000))", set(range(5000)), set(range(4999))),
    ("def f(): return 1 / 3", 0.33333333, 0.34),
    ("def f(): return [5]", [5], 5),
    ("import asyncio\nasync def g(): return 4\ndef f(): return asyncio.run(g())", 4, 5),
    ("import sys\nsys.setrecursionlimit(10**6)\ndef g(n): return n and 1 + g(n - 1)\ndef f(): return g(50000)",
     50000, 1),
    ("class Solution:\n    def f(self): return bytearray(b'x')", b"x", b"y"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "wanted", "other"), VALUES)
def test_values_are_compared_as_python_does(program, wanted, other):
    (answer,) = calls(BOX, program, [["f", []]])
    for value, is_right in ((wanted, True), (other, False)):
        assert right("f", json.dumps(encode(value)), answer) is is_right, answer


def test_scalars_and_arrays_of_numpy_are_values():
    pytest.importorskip("numpy")
    box = Box(memory_mb=2048, libraries=("numpy",), time_s=5.0).json()
    program = "import numpy as np\ndef f(x): return [np.int64(x), np.float64(0.5), np.bool_(True), np.arange(3)]"
    assert calls(box, program, [["f", [4]]]) == [{"status": "ok", "value": [4, 0.5, True, [0, 1, 2]]}]


TESTED = {
    "an exception is expected": (
        "try:\n    candidate(-1)\n    assert False\nexcept ValueError:\n    pass\nassert candidate(4) == 2",
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x ** 0.5",
        "def f(x):\n    return abs(x) ** 0.5",
    ),
    "an exception of its own kind, and what it says": (
        "try:\n    candidate(1)\nexcept ArithmeticError as error:\n    assert str(error) == 'no'\nelse:\n    assert 0",
        "class Bad(ZeroDivisionError): pass\ndef f(x):\n    raise Bad('no')",
        "def f(x):\n    raise ZeroDivisionError('yes')",
    ),
    "the argument is changed": (
        "given = [3, 1, 2]\nassert candidate(given) is None\nassert given == [1, 2, 3]",
        "def f(x): x.sort()",
        "def f(x): sorted(x)",
    ),
    "a dict that is named is changed": (
        "table = {1: [2]}\ncandidate(table=table)\nassert table == {1: [2, 3], 4: []}",
        "def f(table):\n    table[1].append(3)\n    table[4] = []",
        "def f(table):\n    table[4] = []",
    ),
    "a generator": (
        "found = candidate(3)\nassert next(found) == 0\nassert list(found) == [1, 2]",
        "def f(n):\n    yield from range(n)",
        "def f(n):\n    yield from range(n - 1)",
    ),
    "a generator without an end": (
        "from itertools import islice\nassert list(islice(candidate(), 4)) == [0, 1, 2, 3]",
        "import itertools\ndef f(): return map(lambda x: x, itertools.count())",
        "import itertools\ndef f(): return map(lambda x: x + 1, itertools.count())",
    ),
    "a function is given": (
        "assert candidate([3, -4], key=lambda v: -v) == [3, -4]\nassert candidate([1, 2], key=abs) == [1, 2]",
        "def f(x, key): return sorted(x, key=key)",
        "def f(x, key): return sorted(x)",
    ),
    "a function is returned": (
        "add = candidate(3)\nassert add(4) == 7\nassert candidate(add(1))(1) == 5",
        "def f(n): return lambda x: x + n",
        "def f(n): return lambda x: x + n + (x == 1)",
    ),
    "an iterator of any kind": (
        "assert list(candidate('ab')) == ['a', 'b', 'a', 'b']",
        "import itertools\ndef f(x): return itertools.chain(x, iter(x))",
        "def f(x): return iter(x)",
    ),
    "a class is given": (
        "assert candidate([1, 'a', 2.5], int) == [1]\nassert candidate([1, 'a'], str) == ['a']",
        "def f(x, kind): return [v for v in x if isinstance(v, kind)]",
        "def f(x, kind): return [v for v in x if isinstance(v, int)]",
    ),
    "nothing is tried where the program stops": (
        "assert all(map(lambda x: candidate(x) == x + 1, [1, 2]))",
        "def f(x): return x + 1",
        "def f(x): raise StopIteration",
    ),
    "no assert, but an end": (
        "if candidate(1) != 2:\n    raise AssertionError",
        "def f(x): return x + 1",
        "def f(x): return x",
    ),
    "a loop of asserts": (
        "for at in range(10):\n    assert candidate(at) == at * at",
        "def f(x): return x * x",
        "def f(x): return x * x if x < 9 else 0",
    ),
}


@pytest.mark.parametrize("name", TESTED)
def test_test_code_is_as_python_runs_it(name):
    body, right, wrong = TESTED[name]
    tests = instrumented("def check(candidate):\n" + "\n".join(f"    {line}" for line in body.splitlines()))
    for program, passes in ((right, True), (wrong, False)):
        answer = judged(BOX, tests, program, "f")
        assert verdict_of(answer).solved is passes, answer


def test_two_that_call_each_other_for_ever_come_to_an_end():
    tests = instrumented(
        "def check(candidate):\n    again = lambda n: candidate(again)\n    assert candidate(again) == 1"
    )
    answer = judged(BOX, tests, "def f(again): return again(1)", "f")
    assert (answer["passed"], answer["total"]) == (0, 1)


@pytest.mark.slow
def test_an_answer_is_judged_and_not_kept():
    """However long it is: a log holds what became of it, and the beginning of what is wrong."""
    long = "def f(): return [{} for _ in range(100_000)]"
    shown = "[" + "{}, " * 200
    wanted = json.dumps(encode([{}] * 100_000))
    assert tried(BOX, "f", long, [["[]", wanted]]) == [{"status": "ok", "right": True}]
    assert tried(BOX, "f", long, [["[]", "1"]]) == [{"status": "ok", "right": False, "shown": shown[:601]}]
    told = tried(BOX, "", "print('x ' * 1_000_000)", [['""', '"y"']])
    assert told == [{"status": "ok", "right": False, "shown": ("x " * 301)[:601]}]


def test_calls_of_test_code_are_told_where_they_are_short():
    tests = instrumented("def check(candidate):\n    assert candidate(1)\n    assert len(candidate(90_000)) == 90_000")
    found = judged(BOX, tests, "def f(n): return [0] * n", "f", 9)
    assert (found["passed"], found["calls"]) == (2, [["[1]", "[0]"]])
