"""The pool: warm, bounded, and leaving nothing behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ConfigError, Unavailable
from coterie_worlds import sandbox
from coterie_worlds.sandbox import Box, calls, cgroups, keeper
from coterie_worlds.sandbox.backends import missing, start
from coterie_worlds.sandbox.border import FAILURES, MALFORMED, MESSAGES, read
from coterie_worlds.sandbox.remembered import ResultCache, by_itself
from coterie_worlds.sandbox.remote import OPERATIONS, PASSED, Things
from coterie_worlds.sandbox.worker import SandboxPool, SandboxWorker

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
PROGRAM = "def f(x):\n    return x + 1"


def asked(pool: SandboxPool, number: int) -> object:
    with pool.worker() as worker:
        assert worker.run("print(input())", str(number))["output"] == f"{number}\n"
        worker.load(PROGRAM)
        return worker.call(name="f", args=[number], kwargs={})["value"]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> int:
    me = str(os.getpid())
    stats = (stat for stat in Path("/proc").glob("[0-9]*/stat"))
    found = 0
    for stat in stats:
        try:
            found += stat.read_text().rpartition(")")[2].split()[1] == me
        except OSError:  # it has ended since
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_many_in_a_row_leak_no_process_file_or_descriptor(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = descriptors(), children(), threading.active_count()
    pool = SandboxPool(Box(backend))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda number: asked(pool, number), range(60))) == list(range(1, 61))
    pool.close()
    assert (descriptors(), children(), threading.active_count()) == before
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_will_not_start_is_infrastructure_and_is_handed_over(monkeypatch):
    monkeypatch.setattr("coterie_worlds.sandbox.backends.PYTHON", "/nowhere")
    monkeypatch.setattr("coterie_worlds.sandbox.backends._files", lambda libraries: (("/bin/true", "/bin/true"),))
    pool = SandboxPool(Box(memory_mb=333))
    with pytest.raises(Unavailable, match="did not start"), pool.worker():
        pass
    pool.close()
    monkeypatch.setattr(sandbox, "pool", lambda box: pool_of_failures())
    with pytest.raises(ConfigError, match="cannot be run here: bubblewrap did not start: no such thing"):
        sandbox.check(Box(memory_mb=334))


def pool_of_failures() -> SandboxPool:
    pool = object.__new__(SandboxPool)

    def worker():
        raise Unavailable("sandbox", "bubblewrap did not start: no such thing")

    pool.worker = worker  # pyright: ignore[reportAttributeAccessIssue]
    return pool


def test_a_bug_while_starting_is_raised_where_it_is_asked_for(monkeypatch):
    def broken(box):
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("coterie_worlds.sandbox.worker.start", broken)
    pool = SandboxPool(Box(memory_mb=335))
    with pytest.raises(ZeroDivisionError), pool.worker():
        pass
    pool.close()


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_ctrl_c_at_the_terminal_ends_no_program(backend):
    process = start(Box(backend)).process
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_one_that_is_closed_while_it_starts_leaves_no_process(backend):
    for number in range(20):
        worker = SandboxWorker(Box(backend))
        held = os.dup(worker._process.stdout.fileno())
        time.sleep(number * 0.0002)
        worker.close()
        ended = select.poll()
        ended.register(held, 0)  # hung up once nobody holds the other end
        assert ended.poll(5000)
        os.close(held)


def test_a_program_that_ends_itself_is_loaded_again_for_the_next_call():
    program = "import os\ndef f(x):\n    if x: os._exit(x)\n    return x"
    found = calls(Box(time_s=1.0).json(), program, [["f", [at]] for at in (0, 3, 0, 170, 0)])
    assert [answer["status"] for answer in found] == ["ok", "error", "ok", "error", "ok"]
    assert found[3]["message"] == "it ended with exit status 170"


def test_a_dead_keeper_is_its_programs_failure_for_every_further_request():
    worker = SandboxWorker(Box("process"))
    worker.begin()
    worker.load("def f(): return 1")
    worker._process.kill()
    worker._process.wait()
    first = worker.call(name="f", args=[], kwargs={})
    assert first == {"status": "error", "message": "its sandbox ended"}
    assert worker.run("print(1)", "") == worker.call(name="f", args=[], kwargs={}) == first
    worker.close()


def remembered_more(box, program, asked) -> int:
    before = len(sandbox.REMEMBERED)
    assert calls(box, program, asked) == calls(box, program, asked)
    return len(sandbox.REMEMBERED) - before


@pytest.mark.slow
def test_what_the_program_alone_decided_is_remembered_and_nothing_else():
    box = Box(time_s=0.3, memory_mb=301).json()
    assert remembered_more(box, PROGRAM, [["f", [1]]]) == 1
    assert remembered_more(box, PROGRAM, [["f", ["text"]]]) == 1
    assert remembered_more(box, "import time\ndef f(): time.sleep(5)", [["f", []]]) == 0
    assert remembered_more(box, "def f():\n    while True: pass", [["f", []]]) == 0
    assert remembered_more(box, "def f(): return len([0] * 10**9)", [["f", []]]) == 0


@pytest.mark.parametrize(
    "program",
    [
        "import random\ndef f(): return random.random()",
        "from os import urandom\ndef f(): return urandom(1)",
        "import time",
        "def f(): return id(f)",
        "def f(): return hash(object())",
        "def f(): return f.__globals__",
        "def f(): return open('/dev/urandom', 'rb').read(1)",
        "x = __import__('random')",
        "def f(): return __builtins__.open('/dev/urandom', 'rb').read(4)",
        "from statistics import random",
        "import enum\ndef f(): return enum.sys.modules['time'].time()",
        "def f(): return str(locals())",
        "import math, random",
        "#" * 30_000,
        "from datetime import date\ndef f(): return date.today()",
        "import operator\ndef f(): return operator.attrgetter('_' * 2 + 'globals' + '_' * 2)(f)",
        "from operator import attrgetter as a",
        "from math import *",
        "def f(): return '{0.real}'.replace('real', '_' * 2 + 'doc' + '_' * 2).format(f)",
        "def f(): return '{0.__closure__}'.format(f)",
        "import string\ndef f(): return string.Formatter().vformat",
        "import typing\ndef f(x: 'f.__globals__'): return typing.get_type_hints(f)",
        "def f(): return (v for v in ()).gi_frame.f_back",
        "def f(x):\n    match x:\n        case object(__closure__=c): return c",
        "from collections import _sys as s\ndef f(): return s.modules['os'].getpid()",
        "import enum\ndef f(): return enum.bltns.open('/dev/urandom', 'rb').read(1)",
        "from statistics import NormalDist\ndef f(): return NormalDist().samples(1)",
        "import dataclasses\ndef f(): return dataclasses._create_fn",
        "import dataclasses as d\nclass A:\n    def f(self): return self._create_fn\ndef f(): return A.f(d)",
        "import re\nre2 = re\ndef f(): return re2._compiler",
        "class C: pass\ndef f(name): setattr(C, '__match' + '_args__', (name,))",
        "class K:\n    def __instancecheck__(cls, x): return True",
        "def f(name): return type('C', (), {'__match' + '_args__': (name,)})",
        "t = type\ndef f(name): return t('C', (), {'__match' + '_args__': (name,)})",
        "from abc import ABC\nclass C(ABC): gi = 1\ndef f(g): return C.register(g)",
        "from typing import Protocol, runtime_checkable as r\n@r\nclass P(Protocol): pass",
        "import functools\ndef f(w, g): functools.update_wrapper(w, g, assigned=(), updated=('__glo' + 'bals__',))",
        "import functools\ndef f(w, g): functools.wraps(g, updated=('__glo' + 'bals__',))(w)",
        "from functools import wraps as w\ndef f(g): return w(g, ('__glo' + 'bals__',))",
        "import statistics\ndef f(): return '{0.random.random}'.format(statistics)",
        "def f(x): return '{:{0.real}}'.format(x)",
        "import array\ndef f(): return array.array('i', [1]).buffer_info()",
    ],
)
def test_a_program_that_may_use_chance_is_asked_again(program):
    assert not by_itself(program)


@pytest.mark.parametrize(
    "program",
    [
        "def f(x): return '{:>4} {}'.format(x, 1)",
        "import calendar\ndef f(y, m): return calendar.monthrange(y, m)[1]",
        "from datetime import datetime, timedelta\ndef f(t): return (datetime.strptime(t, '%Y') + timedelta(1)).day",
        "class A:\n    def __init__(self): self.x = 1\ndef f(): return A().x",
        "import math\nclass A:\n    def __init__(self, x):\n     super().__init__()\n     self._x = math.floor(x)\n"
        "def f(x): return A(x)._x, type(x).__name__",
        "from collections import namedtuple as n\nP = n('P', 'a')\ndef f(x): return P(x)._replace(a=1)",
        "import functools\ndef aux(g):\n    @functools.wraps(g)\n    def h(*a): return g(*a)\n    return h",
        "def f(x): return '{:.2f} {{}}'.format(x) if type(x) is float else type(x)(1)",
        "import re, math\nfrom collections import Counter\ndef f(x): return Counter(re.findall('a', x)), math.pi",
    ],
)
def test_a_program_that_looks_at_what_it_is_given_alone_is_remembered(program):
    assert by_itself(program)


def test_what_is_remembered_is_bounded_in_bytes():
    held = ResultCache(most_bytes=4 * 100)
    held.put("a", "x" * 39)
    held.put("b", "x" * 39)
    assert held.get("b")
    assert held.get("a")
    held.put("c", "x" * 39)
    assert (held.get("b"), bool(held.get("a")), bool(held.get("c"))) == (None, True, True)
    held.put("a", "x" * 500)
    assert len(held) == 0
    assert held._bytes == 0


def test_what_is_starved_has_longer_by_the_clock_and_who_sleeps_has_not(monkeypatch):
    """Of 2 s of CPU time and 8 s by the clock: at a twentieth of a processor, at a tenth, and asleep."""
    now, cpu = [0.0], [5.0]
    monkeypatch.setattr(keeper.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(keeper, "cpu_of", lambda pid: cpu[0])
    watch = keeper.TimeLeft(1, cpu_s=2.0, wall_s=8.0)
    for seconds, used, late in (
        (7.9, 0.0, False),
        (8.1, 0.0, True),
        (17.9, 1.0, False),
        (18.1, 1.0, True),
        (9.0, 2.1, True),
    ):
        now[0], cpu[0] = seconds, 5.0 + used
        assert (watch.left() <= 0) is late


def test_after_three_that_took_too_long_a_program_is_not_tried_again():
    box = Box(time_s=0.2, memory_mb=302).json()
    found = calls(box, "def f(x):\n    while x: pass\n    return x", [["f", [at]] for at in (0, 1, 0, 2, 3, 0)])
    assert [answer["status"] for answer in found] == ["ok", "timeout", "ok", "timeout", "timeout", "timeout"]


def test_a_large_standard_input_is_read():
    text = "1 " * 500_000
    (answer,) = sandbox.runs(Box().json(), "print(sum(map(int, input().split())))", [text])
    assert answer == {"status": "ok", "output": "500000\n"}


def test_a_value_that_is_too_large_is_an_answer_and_the_next_call_is_served():
    program = "def f(n): return 10 ** n\ndef g(n): return 'x' * n"
    found = calls(Box(output_kb=64).json(), program, [["f", [9000]], ["g", [100_000]], ["g", [3]], ["f", [2]]])
    assert [answer["status"] for answer in found] == ["refused", "output", "ok", "ok"]


def test_a_text_comes_back_whole_and_only_what_a_failure_says_is_cut():
    lengths = (499, 500, 501, 700, 1_000_000)
    found = calls(Box().json(), "def f(n): return 'a' * n", [["f", [length]] for length in lengths])
    assert [len(answer["value"]) for answer in found] == list(lengths)
    tests = "def check(candidate):\n    __record__(lambda: candidate(501) == 'd' * 500)"
    assert sandbox.judged(Box().json(), tests, "def f(n): return 'd' * n", "f")["passed"] == 0
    (failed,) = calls(Box().json(), "def f(): raise ValueError('a' * 1000)", [["f", []]])
    assert failed["message"] == "ValueError: " + "a" * 500


def test_a_set_has_one_order_in_every_sandbox():
    program = "def f(): return ''.join(set('abcdefgh'))\ndef g(): return set('abcdefgh')"
    found = [calls(Box(memory_mb=310 + at).json(), program, [["f", []], ["g", []]]) for at in range(3)]
    assert found[0] == found[1] == found[2]


def test_candidates_may_be_called_with_names():
    found = sandbox.judged(
        Box().json(),
        "def check(candidate):\n    __record__(lambda: candidate(1, y=2) == 3)",
        "def f(x, y): return x + y",
        "f",
    )
    assert (found["passed"], found["total"]) == (1, 1)


def test_a_program_that_is_too_long_is_refused_before_anything_starts():
    assert calls(Box().json(), "x" * 70_000, [["f", []]])[0]["status"] == "refused"
    assert calls(Box().json(), "a\0b", [["f", []]])[0]["status"] == "refused"
    assert sandbox.runs(Box().json(), "a\0b", ["", ""]) == sandbox.runs(Box().json(), "a\0b", ["", ""])


def test_an_unknown_library_is_one_line():
    with pytest.raises(ConfigError, match="no package 'nothing_here'"):
        calls(Box(libraries=("nothing_here",)).json(), PROGRAM, [["f", [1]]])


def test_a_library_in_a_package_is_refused_before_the_package_is_imported(monkeypatch, tmp_path):
    (tmp_path / "evil_package.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'evil_package\.x'; name a package alone"):
        calls(Box(libraries=("evil_package.x",)).json(), PROGRAM, [["f", [1]]])


def test_what_no_program_of_ours_would_say_is_malformed():
    returned = '{"status": "returned", "value": {"range": [0, 1, %d]}}'
    assert read(returned % 1, ("returned",))["status"] == "returned"
    assert read(returned % 0, ("returned",)) == MALFORMED
    asked = '{"status": "asked", "verb": "%s", "args": [], "kwargs": {}, "target": %d}'
    assert read(asked % ("getattr", 0), ("asked",))["status"] == "asked"
    assert read(asked % ("getattr", -1), ("asked",)) == MALFORMED
    assert read(asked % ("eval", 0), ("asked",)) == MALFORMED


def test_of_a_function_that_was_given_only_calls_may_be_asked_where_no_object_crosses():
    """Its globals are where the tests hold what they expect."""
    things = Things(lambda *_: None, objects=False)
    assert things.hold(lambda: 5) == {"function": [0]}
    assert things.used(0, "call", [], {}) == 5
    for verb in OPERATIONS.keys() - PASSED.keys():
        with pytest.raises(LookupError):
            things.used(0, verb, ["__globals__"], {})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "dict", "tuple", "x"]), inner),
    max_leaves=8,
)  # fmt: skip


@given(
    st.sampled_from([*MESSAGES, "other"]),
    st.dictionaries(
        st.sampled_from(["value", "message", "args", "kwargs", "target", "verb", "held", "left"]), anything
    ),
    st.sets(st.sampled_from(list(MESSAGES))),
)
def test_whatever_is_forged_inside_becomes_a_message_that_was_asked_for_and_never_an_exception(status, forged, wanted):
    message = read(json.dumps({"status": status, **forged}), wanted)
    assert message["status"] in {*FAILURES, *wanted}
    assert set(message) - {"status"} <= {name.removesuffix("?") for name in MESSAGES[message["status"]]}
    json.dumps(message, allow_nan=False)


@pytest.mark.parametrize(
    "line",
    [
        b'{"status": []}',
        b'{"status": {}}',
        b'{"status": "returned", "value": NaN}',
        b'{"status": "returned", "value": 1e999}',
        b'{"status": "returned", "value": ' + b"9" * 5000 + b"}",
        b'{"status": "returned"}',
        b'{"status": "returned", "value": {"set": [1], "list": []}}',
        b'{"status": "returned", "value": {"nothing": [1]}}',
        b'{"status": "returned", "value": {"range": [1, 2, 0]}}',
        b'{"status": "returned", "value": "\\ud800"}',
        b'{"status": "held", "held": 1}',
        b'{"status": "asked", "target": -1, "verb": "call", "args": [], "kwargs": {}}',
        b'{"status": "asked", "target": null, "verb": "die", "args": [], "kwargs": {}}',
        b'{"status": "ran"}',
        b"[]",
        b"null",
        b"",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_message_is_refused(line):
    assert read(line, ("returned", "held", "asked")) == MALFORMED


@pytest.fixture
def groups(monkeypatch):
    """Control groups as far as this machine has them: of version 2, with whatever controllers."""
    monkeypatch.setattr(cgroups, "WANTED", ())
    cgroups.home.cache_clear()
    yield cgroups.home()
    cgroups.home.cache_clear()


def test_a_sandbox_enters_its_control_group_and_leaves_none(groups, monkeypatch):
    if groups is None:
        pytest.skip("no control groups of version 2 can be had here")
    seen: list[str] = []
    around = cgroups.ControlGroup.around
    monkeypatch.setattr(
        cgroups.ControlGroup, "around", lambda self, command: seen.append(self.folder) or around(self, command)
    )
    worker = SandboxWorker(Box(memory_mb=313))
    worker.begin()
    assert worker.load(PROGRAM) == {"status": "loaded"}
    inside = (seen[0] / "cgroup.procs").read_text().split()
    assert len(inside) >= 3  # bubblewrap, the keeper, the program
    assert str(os.getpid()) not in inside
    assert not worker._started.starved()
    worker.close()
    assert not seen[0].exists()  # pyright: ignore[reportAttributeAccessIssue]
    assert not list(groups.glob(f"coterie-{os.getpid()}-*"))


def test_the_limits_of_a_control_group(tmp_path, monkeypatch):
    """In a folder that looks like one."""
    monkeypatch.setattr(cgroups, "home", lambda: tmp_path)
    names = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "memory.events")
    made = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda self: (made(self), [(self / name).touch() for name in names]))
    group = cgroups.group(Box(memory_mb=100, tmp_mb=10, threads=5))
    found = {name: (group.folder / name).read_text() for name in names[:5]}
    assert found == {
        "memory.max": str((100 + 10 + cgroups.KEEPERS_MB) << 20), "memory.swap.max": "0", "memory.oom.group": "1",
        "pids.max": "9", "cpu.max": "100000 100000",
    }  # fmt: skip
    assert not group.starved()
    (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.starved()


@pytest.mark.parametrize("lacking", ["controllers", "rights", "everything"])
def test_without_control_groups_there_are_none_and_it_is_said(lacking, tmp_path, monkeypatch):
    (tmp_path / "mounts").write_text(f"none {tmp_path} cgroup2 rw 0 0\n" if lacking != "everything" else "")
    (tmp_path / "cgroup.controllers").write_text("cpu pids" if lacking == "controllers" else "cpu pids memory")
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    cgroups.home.cache_clear()
    assert cgroups.home() is None
    assert cgroups.level().startswith("no control groups can be had")
    cgroups.home.cache_clear()


def test_users_are_drawn_where_the_system_knows_them(monkeypatch):
    from coterie_worlds.sandbox import backends

    monkeypatch.setattr(backends, "_knows", lambda user: True)
    assert len({backends._user() for _ in range(50)}) == 50
    monkeypatch.setattr(backends, "_knows", lambda user: False)
    assert {backends._user() in backends.FEW_USERS for _ in range(50)} == {True}


def test_a_process_that_ends_leaves_no_folder_behind(tmp_path):
    """Sandboxes that wait are told by the end of their input."""
    call = "calls(Box('process').json(), 'def f(): return 1', [['f', []]])"
    program = f"from coterie_worlds.sandbox import Box, calls\nprint({call})"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert found.stdout == "[{'status': 'ok', 'value': 1}]\n"
    assert found.stderr == ""
    ends = time.monotonic() + 30
    while (left := list(tmp_path.iterdir())) and time.monotonic() < ends:
        time.sleep(0.05)
    assert left == []
