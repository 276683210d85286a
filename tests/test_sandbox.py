"""The pool: warm, bounded, and leaving nothing behind."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import sandbox
from coterie.errors import ConfigError, Unavailable
from coterie.sandbox import Box, calls
from coterie.sandbox.backends import missing, start
from coterie.sandbox.worker import STATUSES, Pool, Worker, checked

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
PROGRAM = "def f(x):\n    return x + 1"


def asked(pool: Pool, number: int) -> object:
    with pool.worker() as worker:
        assert worker.ask("run", source="print(input())", stdin=str(number))["output"] == f"{number}\n"
        worker.ask("load", source=PROGRAM)
        return worker.ask("call", name="f", args=[number])["value"]


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


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_many_in_a_row_leak_no_process_file_or_descriptor(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = descriptors(), children(), threading.active_count()
    pool = Pool(Box(backend))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda number: asked(pool, number), range(60))) == list(range(1, 61))
    pool.close()
    assert (descriptors(), children(), threading.active_count()) == before
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_will_not_start_is_infrastructure_and_is_handed_over(monkeypatch):
    monkeypatch.setattr("coterie.sandbox.backends.PYTHON", "/nowhere")
    monkeypatch.setattr("coterie.sandbox.backends._files", lambda libraries: (("/bin/true", "/bin/true"),))
    pool = Pool(Box(memory_mb=333))
    with pytest.raises(Unavailable, match="did not start"), pool.worker():
        pass
    pool.close()
    monkeypatch.setattr(sandbox, "pool", lambda box: pool_of_failures())
    with pytest.raises(ConfigError, match="cannot be run here: bubblewrap did not start: no such thing"):
        sandbox.check(Box(memory_mb=334))


def pool_of_failures() -> Pool:
    pool = object.__new__(Pool)

    def worker():
        raise Unavailable("sandbox", "bubblewrap did not start: no such thing")

    pool.worker = worker  # pyright: ignore[reportAttributeAccessIssue]
    return pool


def test_a_bug_while_starting_is_raised_where_it_is_asked_for(monkeypatch):
    def broken(box):
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("coterie.sandbox.worker.start", broken)
    pool = Pool(Box(memory_mb=335))
    with pytest.raises(ZeroDivisionError), pool.worker():
        pass
    pool.close()


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_ctrl_c_at_the_terminal_ends_no_program(backend):
    process = start(Box(backend)).process
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_dead_sandbox_says_why_to_every_further_request():
    worker = Worker(Box(time_s=0.2))
    worker.begin()
    worker.ask("load", source="import os\ndef f(): os._exit(3)")
    first = worker.ask("call", name="f", args=[])
    assert first == {"status": "error", "message": "it ended without an answer"}
    assert worker.ask("call", name="f", args=[]) == first
    worker.close()


def test_what_took_too_long_is_not_remembered():
    box = Box(time_s=0.3, memory_mb=301).json()
    slow = "import time\ndef f(): time.sleep(5)"
    assert calls(box, slow, [["f", []]]) == [{"status": "timeout"}]
    remembered = sandbox._called.cache_info().currsize
    assert calls(box, slow, [["f", []]]) == [{"status": "timeout"}]
    assert sandbox._called.cache_info().currsize == remembered
    assert calls(box, PROGRAM, [["f", [1]]]) == calls(box, PROGRAM, [["f", [1]]])
    assert sandbox._called.cache_info().currsize == remembered + 1


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
    found = calls(Box().json(), program, [["f", [9000]], ["g", [100_000]], ["g", [3]], ["f", [2]]])
    assert [answer["status"] for answer in found] == ["refused", "output", "ok", "ok"]


def test_a_set_has_one_order_in_every_sandbox():
    program = "def f(): return ''.join(set('abcdefgh'))\ndef g(): return set('abcdefgh')"
    found = [calls(Box(memory_mb=310 + at).json(), program, [["f", []], ["g", []]]) for at in range(3)]
    assert found[0] == found[1] == found[2]


def test_keys_that_are_made_to_collide_are_refused_before_they_are_put_together():
    values = json.dumps({"status": "ok", "value": {"set": [at * (2**61 - 1) for at in range(20_000)]}})
    assert checked(values.encode(), "asked")["status"] == "refused"


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


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "dict", "tuple", "x"]), inner),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["status", "value", "message", "output", "passed", "total", "args"]), anything))
def test_whatever_is_forged_inside_becomes_an_answer_and_never_an_exception(forged):
    answer = checked(json.dumps(forged).encode(), "asked")
    assert answer["status"] in {*STATUSES, "asked"}
    json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize(
    "line",
    [
        b'{"status": []}',
        b'{"status": {}}',
        b'{"status": "ok", "value": NaN}',
        b'{"status": "ok", "value": 1e999}',
        b'{"status": "ok", "value": ' + b"9" * 5000 + b"}",
        b"[]",
        b"",
        b"\xff",
    ],
)
def test_a_line_that_is_no_answer_is_refused(line):
    assert checked(line, "asked") == {"status": "refused", "message": "a malformed answer"}
