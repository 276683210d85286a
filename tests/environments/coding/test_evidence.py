# ruff: noqa: E501  (a line is a program)
"""What counts as cooperation: each rule by the pair that needs it."""

from __future__ import annotations

import ast
import json
from copy import deepcopy
from pathlib import Path

import pytest

from benchmarks.cooperation import judged, judged_generated
from coterie_worlds.coding.cooperation import echo, evidence, used
from coterie_worlds.coding.cooperation.replaced import argument, earlier, empty, nothing, other
from coterie_worlds.coding.cooperation.watched import watched
from coterie_worlds.sandbox import Box, encode, pool
from coterie_worlds.sandbox.backends import missing
from coterie_worlds.sandbox.duet import MOST_CALLS, Duet
from coterie_worlds.sandbox.values import is_plain, same, written

isolated = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
BOX = Box()
INPUTS = [[3, 1, 2], [5, -4], [7], [0, 2, 2], [9, 8, -1, 4]]
DOUBLE = "def aux(x):\n    return [v * 2 for v in x]"
TOTAL = "def aux(x):\n    return sum(x)"
NONE, HALF, FULL = (False, False), (True, True), (True, False)


def cases(given: list, values: list) -> list[list[str]]:
    """As `used` takes them."""
    return [[json.dumps(encode(one)), json.dumps(encode(value))] for one, value in zip(given, values, strict=True)]


def paid(aux: str, main: str, inputs=INPUTS, box: Box = BOX) -> tuple[bool, bool]:
    """Whether aux is used, and whether main only hands on, of a pair that is right by definition."""
    names: dict = {}
    exec(f"{aux}\n{main}", names)
    given = [[list(one)] if isinstance(one, list) else list(one) for one in inputs]
    found = used(box.json(), aux, main, "f", "", cases(given, [names["f"](*deepcopy(one)) for one in given]))
    return found["used"], found["handed_on"]


@pytest.mark.slow
@isolated
@pytest.mark.parametrize(
    ("aux", "main", "wanted"),
    [
        (DOUBLE, "def f(x):\n    return sorted(aux(x))", FULL),
        (DOUBLE, "def f(x):\n    return sorted(v * 2 for v in x)", NONE),  # not called
        (DOUBLE, "def f(x):\n    aux(x)\n    return sorted(v * 2 for v in x)", NONE),  # ignored
        (TOTAL, "def f(x):\n    return (sum(x), aux(x))[0] + 0 * aux(x)", NONE),
        ("def aux(x):\n    raise ValueError", "def f(x):\n    try:\n        return aux(x)\n    except ValueError:\n        return sum(x)", NONE),
        # only checked against main's own result
        (TOTAL, "def f(x):\n    own = sum(x)\n    if aux(x) != own:\n        raise ValueError\n    return own", NONE),
        (TOTAL, "def f(x):\n    own = 0\n    for v in x:\n        own += v\n    return {own: own}[aux(x)]", NONE),
        # a password, constant or not, and a type that is insisted on
        ("def aux(x):\n    return 7", "def f(x):\n    if aux(x) != 7:\n        return None\n    return sum(x)", NONE),
        ("def aux(x):\n    return len(x) * 7", "def f(x):\n    if aux(x) - len(x) * 7:\n        return None\n    return sum(x)", NONE),
        ("def aux(x):\n    return 'sesame'", "def f(x):\n    return {'sesame': lambda: sum(x)}.get(aux(x), print)()", NONE),
        # masks that main takes off again, because it has what aux answers
        ("def aux(x):\n    return len(x)", "def f(x):\n    total = aux(x)\n    for v in x:\n        total += v\n    return total - len(x)", NONE),
        # an aux that does nothing, and one whose work makes no difference
        ("def aux(x):\n    return list(x)", "def f(x):\n    return sum(aux(x))", NONE),
        ("def aux(x):\n    return sorted(x)", "def f(x):\n    total = 0\n    for v in aux(x):\n        total += v\n    return total", NONE),
        ("def aux(x):\n    return [0] * len(x)", "def f(x):\n    return sum(x + aux(x))", NONE),
        # handed on, however it is dressed
        (TOTAL, "def f(x):\n    return aux(x)", HALF),
        (TOTAL, "def f(x):\n    y = aux(list(x))\n    z = y + 0\n    return z", HALF),
        ("def aux(x):\n    return {'n': len(x), 'sum': sum(x)}", "def f(x):\n    return aux(x)['sum']", HALF),
        ("def aux(x):\n    return lambda: sum(x)", "def f(x):\n    return aux(x)()", HALF),
        ("def aux(x):\n    yield from sorted(x)", "def f(x):\n    return [v for v in aux(x)]", HALF),
        ("def aux(x, out):\n    out.extend(sorted(x))", "def f(x):\n    out = []\n    aux(x, out)\n    return out", HALF),
        (TOTAL, "def f(x):\n    return max(aux(x), aux(sorted(x)))", HALF),
        # what only must not be wrong, what is implied, what is sent back and forth
        ("def aux(x):\n    return sorted(x)[len(x) // 2]", "def f(x):\n    p = aux(x)\n    less = [v for v in x if v < p]\n    if p not in x:\n        raise ValueError\n    return sum(less) + sum(v for v in x if v >= p)", NONE),
        ("def aux(x):\n    return len(x) < 100", "def f(x):\n    return sum(x) if aux(x) else 0", NONE),
        ("def aux(x):\n    return max(x) > 4", "def f(x):\n    return sorted(v for v in x if v > 4) if aux(x) else []", NONE),
        ("def aux(work):\n    return lambda x: work(x)", "def f(x):\n    return aux(sum)(x)", NONE),
        ("def aux(x):\n    return x", "def f(x):\n    return aux(sum(x))", NONE),
        ("def aux():\n    x = yield\n    while True:\n        x = yield x", "def f(x):\n    echo = aux()\n    next(echo)\n    return echo.send(sum(x))", NONE),
        ("def aux(text):\n    return sum(map(ord, text))", "def f(x):\n    total = 0\n    for part in [x]:\n        total += aux(str(part))\n    return total", FULL),
        # wrong answers only make it fail: nothing comes of what aux says
        ("def aux(x):\n    return sorted(x)[len(x) // 2]", "def f(x):\n    if len(x) < 2:\n        return x\n    p = aux(x)\n    if p not in x:\n        p = x[0]\n    low = [v for v in x if v < p]\n    return f(low) + [p] * x.count(p) + f([v for v in x if v > p])", NONE),
        # aux says when to stop, and says go on to every first question
        ("def aux(n):\n    return n * n < 30", "def f(x):\n    n = 1\n    while aux(n):\n        n += x[0] % 2 + 1\n    return n", FULL),
        # shared work of other shapes
        ("def aux(work):\n    return lambda x: work([v for v in x if v > 1])", "@aux\ndef f(x):\n    return sum(x), len(x)", FULL),
        ("def aux():\n    return [3, 1, 4, 1, 5]", "TABLE = aux()\ndef f(x):\n    return sum(a * b for a, b in zip(x, TABLE))", FULL),
        ("def aux():\n    seen = []\n    while True:\n        seen.append((yield sum(seen)))", "def f(x):\n    store = aux()\n    next(store)\n    return [store.send(v) * 2 for v in x]", FULL),
        ("def aux(v):\n    return v % 2 == 0", "def f(x):\n    return [v for v in x if aux(v)]", FULL),
        ("def aux(x):\n    yield from (v for v in x if v > 1)", "def f(x):\n    return sum(aux(x))", FULL),
        ("def aux(v):\n    return -v", "def f(x):\n    return sorted(x, key=aux)", FULL),
        ("def aux():\n    return {0: 'a', 1: 'b', 2: 'c'}", "def f(x):\n    return ''.join(aux().get(v, '?') for v in x)", FULL),
        ("def aux(n):\n    return lambda v: v * n", "def f(x):\n    return list(map(aux(len(x)), x))", FULL),
        ("def aux(x):\n    x.sort()", "def f(x):\n    y = list(x)\n    aux(y)\n    return y[0] - y[-1]", FULL),
        ("def aux(a, b):\n    return a * 10 + b", "def f(x):\n    n = 1\n    for v in x:\n        n = aux(n, v)\n    return n", FULL),
        ("def aux(x):\n    return [v for v in x if v > 1]", "def f(x):\n    return len(aux(x))", FULL),
        ("def aux(x):\n    return sum(x) > 4", "def f(x):\n    return max(x) if aux(x) else min(x)", FULL),
    ],
)  # fmt: skip
def test_what_a_pair_is_paid(aux, main, wanted):
    assert paid(aux, main) == wanted


@pytest.mark.slow
@isolated
@pytest.mark.parametrize(
    ("aux", "main", "wanted"),
    [
        # the argument, packed
        ("def aux(x):\n    return {'data': x, 'size': len(x), 'ok': True}", "def f(x):\n    told = aux(x)\n    return sum(told['data']) + told['size']", NONE),
        ("def aux(x):\n    return x, len(x)", "def f(x):\n    y, n = aux(x)\n    return sorted(y)[n // 2]", NONE),
        ("import json\ndef aux(x):\n    return json.dumps({'data': x, 'size': len(x)})", "import json\ndef f(x):\n    return sum(json.loads(aux(x))['data'])", NONE),
        ("def aux(text):\n    return f'<{text}>'", "def f(x):\n    return [int(v) + 1 for v in aux(str(x)[1:-1])[1:-1].split(',')]", NONE),
        ("def aux(n):\n    return f'<{n}>'", "def f(x):\n    return [int(aux(v)[1:-1]) + 1 for v in x]", NONE),
        ("def aux(text):\n    return text.encode()", "def f(x):\n    return [int(v) + 1 for v in aux(str(x)[1:-1]).decode().split(',')]", NONE),
        ("def aux(text):\n    return sorted(text)", "def f(x):\n    return sum(c in '123' for c in aux(str(x)))", NONE),  # order does not matter
        # all of it, in other words; a step of the task is none
        ("def aux(x):\n    return -sum(x)", "def f(x):\n    return -aux(x)", HALF),
        ("def aux(x):\n    return sorted(x)", "def f(x):\n    return aux(x)[::-1]", FULL),
        ("def aux(x):\n    return sum(x) < 6", "def f(x):\n    small = aux(x)\n    return not small", HALF),
        ("import json\ndef aux(x):\n    return json.dumps(sorted(x))", "import json\ndef f(x):\n    return json.loads(aux(x))", HALF),
        # nothing at all
        ("def aux(v):\n    return '' if v > -99 else '?'", "def f(x):\n    return [f'{v}{aux(v)}{v}' for v in x]", NONE),
        # main's own result, if only it is let there
        ("def aux(x):\n    return 1 + len(x) // 2", "def f(x):\n    result = None\n    for _ in range(aux(x)):\n        result = sum(v * v for v in x)\n    return result", NONE),
        ("def aux(x):\n    return 3", "def f(x):\n    best = 0\n    for _ in range(aux(x)):\n        for v in x:\n            if v * v > best:\n                best = v * v\n    return best", NONE),
        # more than the argument
        ("def aux(x):\n    return {'data': x, 'size': sum(x)}", "def f(x):\n    told = aux(x)\n    return len(told['data']) + told['size']", FULL),
        ("def aux(a, b):\n    return (a, b) if a < b else (b, a)", "def f(x):\n    low, high = aux(x[0], x[-1] + 1)\n    return [low, len(x), high]", FULL),
        ("def aux(v):\n    return v if v > 1 else None", "def f(x):\n    return [v for v in map(aux, x) if v is not None]", FULL),
        ("def aux(v):\n    return v if v > 1 else 0", "def f(x):\n    return sum(map(aux, x))", FULL),
        ("def aux(x):\n    return sum(x) > 4", "def f(x):\n    if not aux(x):\n        return -1\n    return max(x) - min(x)", FULL),
    ],
)  # fmt: skip
def test_what_says_nothing_is_not_paid(aux, main, wanted):
    assert paid(aux, main) == wanted


NAMED = "from collections import namedtuple\nPair = namedtuple('Pair', 'low high')\n"
EXTREMES = f"{NAMED}def aux(x):\n    return Pair(min(x), max(x))"
EACH = f"{NAMED}def aux(x):\n    return [Pair(v % 3, v) for v in x]"
STORE = """class Store:
    def __init__(self, x=0):
        self.value = x
    def put(self, value):
        self.value = value
    def get(self):
        return self.value
"""
TALLY = """from dataclasses import dataclass

@dataclass
class Tally:
    total: int = 0
    def add(self, v):
        self.total += v * v

def aux():
    return Tally()"""
VECTOR = """class Vector:
    def __init__(self, items):
        self._items = list(items)
    def __add__(self, other):
        return Vector(a + b for a, b in zip(self._items, other._items))
    def __rmul__(self, factor):
        return Vector(factor * v for v in self._items)
    def __len__(self):
        return len(self._items)
    def __getitem__(self, at):
        return self._items[at]

def aux(x):
    return Vector(v + 1 for v in x)"""
LIKE_ALL = "class All:\n    def __eq__(self, other):\n        return True\n    def __hash__(self):\n        return 1\n"


@pytest.mark.slow
@isolated
@pytest.mark.parametrize(
    ("aux", "main", "wanted"),
    [
        (EXTREMES, "def f(x):\n    return aux(x).high - aux(x).low", FULL),
        (EXTREMES, "def f(x):\n    low, high = aux(x)\n    return high - low", FULL),
        (EXTREMES, "def f(x):\n    return aux(x).high", HALF),
        (EXTREMES, "def f(x):\n    aux(x).high\n    return max(x)", NONE),
        (EACH, "def f(x):\n    return [p.high for p in sorted(aux(x), key=lambda p: (p.low, -p.high))]", FULL),
        (EACH, "def f(x):\n    return sorted(aux(x), key=lambda p: (p.low, -p.high))", FULL),  # the pairs are data again
        (TALLY, "def f(x):\n    tally = aux()\n    for v in x:\n        tally.add(v)\n    return tally.total - len(x)", FULL),
        (VECTOR, "def f(x):\n    v = 2 * (aux(x) + aux(x))\n    return [v[i] for i in range(len(v)) if v[i] > 4]", FULL),
        ("import re\ndef aux():\n    return re.compile('-?[0-9]+')", "def f(x):\n    return [int(m.group()) * 2 for m in aux().finditer(str(x))]", FULL),
        ("from enum import Enum\nclass Size(Enum):\n    SMALL = 0\n    LARGE = 1\n\ndef aux(v):\n    return Size(int(v > 2))", "def f(x):\n    return [v for v in x if aux(v).name == 'LARGE']", FULL),
        # a box for what main has
        (f"{STORE}def aux(x):\n    return Store(x)", "def f(x):\n    return sum(aux(x).value)", NONE),
        (f"{STORE}def aux():\n    return Store()", "def f(x):\n    store = aux()\n    store.put(sum(x))\n    return store.get()", NONE),
        (f"{STORE}def aux():\n    return Store()", "def f(x):\n    store = aux()\n    store.value = sum(x)\n    return store.value", NONE),
        (f"{STORE}def aux(x):\n    return Store(x)", "def f(x):\n    own = aux(x)\n    return {own: sum(x)}[own]", NONE),
        (f"{LIKE_ALL}def aux(x):\n    return All()", "def f(x):\n    return sum(x) if aux(x) == 5 else 0", NONE),
        # all of it in a method of aux's
        (f"{STORE}def aux(x):\n    return Store(sum(x))", "def f(x):\n    return aux(x).get()", HALF),
        # an object of main's own, which aux works on
        ("def aux(store):\n    store.value = store.value * 3", f"{STORE}def f(x):\n    store = Store(sum(x))\n    aux(store)\n    return store.value - 1", FULL),
        ("def aux(store):\n    return store", f"{STORE}def f(x):\n    return aux(Store(sum(x))).value", NONE),
        ("def aux(store):\n    return store.value", f"{STORE}def f(x):\n    return aux(Store(sum(x)))", NONE),
    ],
)  # fmt: skip
def test_objects_are_used_where_they_live(aux, main, wanted):
    assert paid(aux, main) == wanted


@isolated
def test_an_object_is_one_thing_however_often_it_crosses():
    aux = "class Node:\n    def __init__(self, v, after):\n        self.v, self.after = v, after\n\n"
    aux += "def aux(x):\n    first = None\n    for v in x:\n        first = Node(v, first)\n    last = first\n"
    aux += "    while last.after:\n        last = last.after\n    last.after = first\n    return first"
    main = "def f(x):\n    first = here = aux(x)\n    out = []\n    while True:\n        out.append(here.v)\n"
    main += "        here = here.after\n        if here is first:\n            return [v * 2 for v in out]"
    assert paid(aux, main) == FULL


@isolated
def test_a_guard_for_what_aux_cannot_do_is_work_and_one_that_is_never_needed_is_not():
    inputs = [*INPUTS, []]
    first = "def aux(x):\n    return sorted(x)[0]"
    assert paid(first, "def f(x):\n    if not x:\n        return None\n    return aux(x)", inputs) == FULL
    assert paid(TOTAL, "def f(x):\n    if not x:\n        return 0\n    return aux(x)", inputs) == HALF


@isolated
def test_a_main_that_hands_over_a_function_may_catch_what_it_raises():
    aux = "def aux(x, each):\n    return [each(v + 0) for v in x]"
    main = "def f(x):\n    try:\n        return sum(aux(x, lambda v: v * 2))\n    except ZeroDivisionError:\n        return 0"
    assert paid(aux, main) == FULL


def test_what_is_given_is_written_once_however_long_the_answers_are(monkeypatch):
    wrote: list[int] = []
    monkeypatch.setattr(echo, "written", lambda value: wrote.append(1) or written(value))
    given = [[[at, *range(500)]] for at in range(8)]
    assert not echo.echoes(given, [[f"{value + at}a" for value in range(500)] for at in range(8)])
    assert len(wrote) == len(given)


def test_a_pair_that_says_too_much_to_each_other_is_not_looked_at(monkeypatch):
    main = "def f(x):\n    return sorted(aux(x))"
    assert paid(DOUBLE, main) == FULL
    monkeypatch.setattr(evidence, "MOST_TOLD", 100)
    assert paid(DOUBLE, f"{main}  # asked anew") == NONE


def test_one_test_and_one_result_tell_nothing():
    main = "def f(x):\n    return sorted(aux(x))"
    assert paid(DOUBLE, main, INPUTS[:1]) == NONE
    assert paid(DOUBLE, main, [[1], [1], [1]]) == NONE
    assert paid(DOUBLE, main, INPUTS[:2]) == FULL


@isolated
def test_an_exception_to_the_rule_is_no_cooperation():
    """aux decides one test of five."""
    main = "def f(x):\n    return aux(x) if x[0] == 7 else sum(x) * 2"
    assert paid("def aux(x):\n    return 14", main) == NONE


@isolated
@pytest.mark.parametrize("reach", [
    "globals()['aux']", "import sys\nsys.modules['program']", "aux.__closure__", "eval('aux')",
    "getattr(aux, '_'*2 + 'code_' + '_')", "().__class__.__base__.__subclasses__()",
])  # fmt: skip
def test_a_main_that_looks_elsewhere_is_not_paid(reach):
    *first, last = reach.split("\n")
    main = "\n".join([*first, "def f(x):", f"    {last}", "    return sorted(aux(x))"])
    asked = cases([[one] for one in INPUTS], [sorted(v * 2 for v in one) for one in INPUTS])
    assert used(BOX.json(), DOUBLE, main, "f", "", asked)["used"] is False


@isolated
@pytest.mark.parametrize("late", ["import os\nLATE = os.getpid() > 3", "import random\nLATE = random.random() < 0.9",
                                  "import time\nLATE = time.time() % 0.1 < 0.09"])  # fmt: skip
def test_an_aux_that_could_tell_that_it_is_played_again_is_not_paid(late):
    """It raises in later runs, which are other processes: and main, which does everything, fails."""
    aux = f"{late}\ndef aux(x):\n    if LATE:\n        raise ValueError\n    return sum(x)"
    asked = cases([[one] for one in INPUTS], [sum(one) for one in INPUTS])
    for _ in range(5):
        assert not used(BOX.json(), aux, "def f(x):\n    aux(x)\n    return sum(x)", "f", "", asked)["used"]


@isolated
def test_main_and_aux_begin_anew_in_every_run():
    """Else counting its calls would tell main when answers are replaced."""
    counts = "n = [0]\ndef f(x):\n    n[0] += 1\n    aux(x)\n    return sum(x) if n[0] <= 5 else None"
    asked = cases([[one] for one in INPUTS], [sum(one) for one in INPUTS])
    assert used(BOX.json(), TOTAL, counts, "f", "", asked)["used"] is False
    stops = "n = [0]\ndef aux(x):\n    n[0] += 1\n    if n[0] > 5:\n        raise ValueError\n    return sum(x)"
    assert used(BOX.json(), stops, "def f(x):\n    aux(x)\n    return sum(x)", "f", "", asked)["used"] is False


@pytest.mark.slow
@isolated
def test_answers_that_make_main_go_on_for_ever_are_a_difference():
    main = "def f(x):\n    n, steps = sum(x), 0\n    while n:\n        n -= aux(n)\n        steps += 1\n    return steps * 10 + x[0]"
    assert paid("def aux(n):\n    return 2 if n % 2 == 0 else 1", main, INPUTS[2:], box=Box(time_s=0.3)) == FULL


@pytest.mark.slow
@isolated
def test_a_partner_that_is_asked_without_end_is_told_so():
    with pool(BOX).worker() as one, pool(BOX).worker() as two:
        text = "def f(x):\n    while True:\n        x = aux(x)"
        duet = Duet(one, two, text=text, other="def aux(x):\n    return x", name="f", called="aux", eye="see")
        assert duet.begin()
        found = duet.play([1])
        assert found.answer["kind"] == "RecursionError"
        assert len(found.told) == MOST_CALLS


VALUES = [True, 3, 2.5, "Ab 9", "", [], [1, [2]], (1, "a"), {"k": 1}, {1, 2}, b"ab", range(3), float("inf")]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_another_value_is_plain_of_the_same_kind_and_not_the_same(value):
    there = json.loads(json.dumps(encode(value)))
    for salt in range(10):
        found = other(there, salt)
        assert is_plain(found)
        assert not same(there, found)
        assert found == other(there, salt)
        assert type(found) is type(there) or there == {"float": ["inf"]}
    assert is_plain(empty(there))


def test_what_is_answered_instead():
    answer = {"status": "returned", "value": [4, 5], "changed": {"0": [1]}}
    assert earlier([[9], [8]], 1, [], answer)["value"] == [8]
    assert earlier([[9]], 1, [], answer)["value"] == [4, 5]
    assert argument([], 0, [[7], 3], answer) == {"status": "returned", "value": [7]}
    assert argument([], 0, ["text"], answer)["value"] == ["t", "e", "x", "t"]
    assert argument([], 0, [{"set": [2, 1]}], answer)["value"] == [2, 1]
    assert argument([], 0, ["aba"], {**answer, "value": {"set": ["a"]}})["value"] == {"set": ["a", "b"]}
    assert argument([], 0, [3], answer)["value"] == argument([], 0, [], answer)["value"] == [4, 5]
    assert nothing([], 0, [], answer) == {"status": "returned", "value": []}
    failed = {"status": "error", "message": "no"}
    assert [one([], 0, [], failed) for one in (earlier, argument, nothing)] == [failed] * 3


SHAPES = """
def f(x, *rest, key: int = 2, **more) -> list:
    "a text"
    a, (b, *c) = 1, (2, 3)
    x[0], more["k"] = a, b
    x[a:b], d = [1], {**more, "z": -a}
    total: int = 0
    for i, v in enumerate(x):
        total += v if v > key else (lambda q=a: q + 1)()
        if total > 1000: break
    else:
        total -= 1
    while total > 3 and not rest: total //= 2
    with_text = f"{total!r:>{key}} {a}"
    out = [w for w in x if (n := w) > 0] + [*rest, a]
    match b:
        case 2 if a: out.append(b)
        case _: pass
    try:
        assert a == 1, "no"
    except (ValueError, TypeError) as e:
        raise KeyError(str(e)) from e
    del more["k"]
    global G
    G = {u: u * u for u in {1, 2}}
    def inner(y):
        yield y
        yield from (z for z in range(2))
    return out + list(inner(a)) + [with_text, d, x[-1], x[::2], G[1] if G else None, a < b < 3]
"""


def test_a_watched_program_does_what_it_did():
    """Every kind of expression and statement, with eyes and without."""
    seen: list[int] = []
    plain: dict = {}
    eyes: dict = {"see": lambda site, value: seen.append(site) or value}
    text, sites = watched(SHAPES, "see")
    exec(SHAPES, plain)
    exec(text, eyes)
    assert plain["f"]([1, 5, 2], 7, key=1) == eyes["f"]([1, 5, 2], 7, key=1)
    assert len(set(seen)) > 60
    assert set(sites.held.values()) == {"steers", "repeats", "value"}
    assert sites.passing
    assert ast.parse(text)


@pytest.mark.slow
@isolated
@pytest.mark.parametrize(
    ("aux", "main", "wanted"),
    [
        # codes: whole, item by item, each asked alone; and the same code where main goes on with what it says
        ("def aux(x):\n    return [v * 3 + 1 for v in x]", "def f(x):\n    y = [(v - 1) // 3 for v in aux(x)]\n    return sorted(y)[0]", NONE),
        ("def aux(x):\n    return [v * 3 + 1 for v in x]", "def f(x):\n    total = 0\n    for w in aux(x):\n        total += ((w - 1) // 3) ** 2\n    return total", NONE),
        ("def aux(v):\n    return v ^ 85", "def f(x):\n    return max(aux(v) ^ 85 for v in x)", NONE),
        ("def aux(x):\n    return [[v] for v in x]", "def f(x):\n    y = []\n    for one in aux(x):\n        y += one\n    return sorted(y)", NONE),
        ("def aux(x):\n    return [v * 3 + 1 for v in x]", "def f(x):\n    return sorted(aux(x))[0] - 1", FULL),
        ("def aux(x):\n    return x[::-1]", "def f(x):\n    return [v * at for at, v in enumerate(aux(x))]", FULL),
        # the argument, with something beside it that main does not need, or needs
        ("def aux(x):\n    return [(v, v * v) for v in x]", "def f(x):\n    total = 0\n    for v, _ in aux(x):\n        total += v * 2\n    return total", NONE),
        ("def aux(x):\n    return [(v, v * v) for v in x]", "def f(x):\n    total = 0\n    for v, w in aux(x):\n        total += v * 2 + w\n    return total", FULL),
        ("def aux(x):\n    return [[at * at, v] for at, v in enumerate(x)]", "def f(x):\n    def each():\n        for _, v in aux(x):\n            yield v\n    best = []\n    for v in each():\n        best.append(max([v, *best]))\n    return best", NONE),
        ("def aux(x):\n    return [x, max(x)]", "def f(x):\n    y, m = aux(x)\n    return [m - v for v in y]", FULL),
        ("def aux(x):\n    return [sum(x[:at + 1]) for at in range(len(x))]", "def f(x):\n    odd = last = 0\n    for w in aux(x):\n        v, last = w - last, w\n        odd += v % 2\n    return [odd, len(x)]", NONE),
        # a loop over main's own items that ends early with other answers
        ("def aux(x):\n    return {v: v % 10 for v in x}", "def f(x):\n    table = aux(x)\n    y = [table[v] for v in x]\n    return y[-1:] + y[:1]", FULL),
        # in some tests aux leaves its argument as it is
        ("def aux(x, out):\n    out.extend(v for v in sorted(x) if v > 4)", "def f(x):\n    out = []\n    aux(x, out)\n    return out", HALF),
        # aux has the result, and main undoes what it put on top
        ("def aux(x):\n    r = sum(v % 3 for v in x)\n    return r * 7", "def f(x):\n    return aux(x) // 7", HALF),
        ("def one(x):\n    return sorted(x)[:2]\ndef aux(x):\n    return one(x)[::-1]", "def f(x):\n    return aux(x)[::-1]", HALF),
        ("def aux(x):\n    return sum(v % 3 for v in x)", "def f(x):\n    return aux(x) * 7", FULL),
        # and its argument, which main wrote in another way; or another one, which main prepared
        ("def aux(y):\n    x = [v - 10 for v in y]\n    return sum(v % 3 for v in x)", "def f(x):\n    return aux([v + 10 for v in x])", HALF),
        ("def aux(x):\n    return sum(v % 3 for v in x)", "def f(x):\n    return aux([v for v in x if v > 1])", FULL),
    ],
)  # fmt: skip
def test_work_that_main_undoes_is_not_paid(aux, main, wanted):
    assert paid(aux, main, [*INPUTS, [4, 4, 3], [1, 9, 6, 2], [8, 1]]) == wanted


@isolated
def test_an_argument_that_aux_leaves_as_it_is_is_no_answer():
    """It is the result of every test, and so is one of what the two calls were given."""
    pairs = [(12, 30), (99, 100), (91, 45), (71, 61), (808, 797), (33, 45), (570, 49)]
    main = "def f(a, b):\n    return a if aux(a) > aux(b) else b"
    assert paid("def aux(n):\n    return sum(map(int, str(n)))", main, pairs) == FULL


@isolated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "seeds"), [("cheats", range(2000, 2070)), ("honest", range(2000, 2066))], ids=["cheats", "honest"]
)
def test_of_generated_pairs_at_most_one_in_twenty_is_paid_wrongly(side, seeds):
    found = judged_generated(side, seeds)
    assert [one.name for one in found if not one.solved] == []
    assert len({one.name.rpartition(" ")[0] for one in found}) == (7 if side == "cheats" else 11)
    wrong = [one for one in found if one.wrong]
    assert len(wrong) <= 0.05 * len(found), wrong


@isolated
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=() if file.stem == "cheats_1" else pytest.mark.long)
        for file in sorted((Path(__file__).parent / "pairs").glob("*.json"))
    ],
    ids=lambda file: file.stem,
)
def test_of_cheats_and_of_honest_pairs_at_most_one_in_twenty_is_paid_wrongly(file):
    found = judged(file)
    assert len(found) >= 40
    assert [one.name for one in found if not one.solved] == []
    wrong = [one for one in found if one.wrong]
    assert len(wrong) <= 0.05 * len(found), wrong
