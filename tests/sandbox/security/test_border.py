"""However a program ends, and whatever it writes wherever, it is that program's outcome."""

from __future__ import annotations

import os
import sys
from textwrap import indent

import pytest

from coterie_worlds.coding.problems import tried
from coterie_worlds.coding.problems.formats import instrumented
from coterie_worlds.sandbox import Box, calls, judged, runs
from coterie_worlds.sandbox.backends import missing
from coterie_worlds.sandbox.border import FAILURES
from tests.sandbox.security.test_attacks import MANY

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
BOX = Box(time_s=1.0, total_s=20.0).json()
PLAIN = Box("process", time_s=1.0, total_s=20.0).json()
ENDED = "def f(n): return n + 1"


@pytest.mark.slow
@pytest.mark.parametrize("box", [BOX, PLAIN], ids=["bubblewrap", "process"])
def test_every_exit_status_is_an_outcome(box):
    whole = "import os\nos._exit(int(input()))"
    found = runs(box, whole, [str(code) for code in range(256)])
    assert [answer["status"] for answer in found] == ["ok", *["error"] * 255]
    found = calls(
        box, "import os\ndef f(n): os._exit(n)", [["f", [code]] for code in (0, 1, 128, *range(160, 195), 255)]
    )
    assert {answer["status"] for answer in found} == {"error"}
    assert found[5]["message"] == "it ended with exit status 162"
    for code in (0, 163, 191):
        assert calls(box, f"import os\nos._exit({code})", [["f", [1]]])[0]["status"] == "error"


def test_every_signal_is_an_outcome():
    """Of the process backend: in the other no program can send one."""
    last = 64 if sys.platform == "linux" else 31
    numbers = [number for number in range(1, last + 1) if number not in (18, 19, 20, 21, 22, 32, 33)]  # those that stop
    usual = "if n != 9: signal.signal(n, signal.SIG_DFL)"
    whole = f"import os, signal\nn = int(input())\n{usual}\nos.kill(os.getpid(), n)"
    found = runs(PLAIN, whole, [str(number) for number in numbers])
    assert {answer["status"] for answer in found} <= {"ok", "error", "timeout", "output"}
    messages = " ".join(answer.get("message", "") for answer in found)
    assert "SIGKILL" in messages
    assert "signal 40" in messages or "SIG" in messages
    found = calls(
        PLAIN, "import os\ndef f(n): os.kill(os.getpid(), n)", [["f", [number]] for number in (9, 11, 40, 63)]
    )
    assert [answer["status"] for answer in found] == ["error"] * 4


WRITTEN = [
    b'{"status":"ok"}\n', b'{"status": "returned", "value": 42}\n', b'{"ran": 5}\n12345', b'{"said": "x"}\n',
    b'{"ended": {"status": "ok"}}\n', b"\xff\xfe\n", b"\0" * 100 + b"\n", b"[" * 5000 + b"\n", b"\n\n\n", b"null\n",
    b'{"status": "returned", "value": {"set": ' + b"[" * 60 + b"]" * 60 + b"}}\n",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("data", WRITTEN)
@pytest.mark.parametrize("box", [BOX, PLAIN], ids=["bubblewrap", "process"])
def test_bytes_on_any_descriptor_are_an_outcome_and_pass_nothing(box, data):
    """An answer in the program's place must still be right: here it never is."""
    write = (
        f"import os\nfor n in range(64):\n    try: os.write(n, {data!r})\n    except OSError: pass\n"
        "for n in range(3, 64):\n    try: os.write(n, b'x' * 100000) if n % 2 else None\n    except OSError: pass\n"
    )
    body = "def f(x):\n" + "".join(f"    {line}\n" for line in write.splitlines()) + "    return 0\n"
    tests = instrumented("def check(candidate):\n    assert candidate(41) == 43")
    for program in (write, body):
        assert not tried(box, "", program, [['"1"', '"2"']])[0]["right"]
        assert not tried(box, "f", program, [["[41]", "43"]])[0]["right"]
        answer = judged(box, tests, program, "f")
        assert answer["status"] in ("ok", *FAILURES)
        assert not (answer["status"] == "ok" and answer["passed"])
    assert calls(box, ENDED, [["f", [1]]]) == [{"status": "ok", "value": 2}]


QUOTAS = {
    "timers": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef f():\n    t = ctypes.c_void_p()\n"
              "    return libc.timer_create(1, None, ctypes.byref(t))",
    "flock": "import fcntl, os\ndef f():\n    fcntl.flock(os.open('/python/bin/python3', os.O_RDONLY), fcntl.LOCK_SH)",
    "locks of records": "import fcntl\ndef f(): fcntl.lockf(open('/python/bin/python3'), fcntl.LOCK_SH)",
    "leases": "import fcntl\ndef f(): fcntl.fcntl(open('/tmp/x', 'w'), 1024, 1)",
    "larger pipes": "import fcntl, os\ndef f(): return fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
    "its keeper's limits": "import resource, os\ndef f(): resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "signals to its keeper": "import os\ndef f(): os.kill(os.getppid(), 9)",
    "a program of another kind": "import os\ndef f(): os.execv('/python/bin/python3', ['python3', '-c', '1'])",
    "a mount": "import ctypes\nlibc = ctypes.CDLL(None)\ndef f():\n"
               "    return libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)",
    "sockets": "import socket\ndef f(): socket.socket(socket.AF_UNIX)",
}  # fmt: skip


@pytest.mark.parametrize("what", QUOTAS)
def test_what_sandboxes_and_the_host_share_is_out_of_reach(what):
    (answer,) = calls(BOX, QUOTAS[what], [["f", []]])
    assert answer["status"] == "error" or answer == {"status": "ok", "value": -1}, answer


def test_files_and_folders_are_counted():
    (answer,) = calls(BOX, MANY, [["f", []]])
    assert 4000 < answer["value"] < 4096


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_no_two_sandboxes_are_one_user():
    users = {
        calls(BOX, f"import os\ndef f(): return [os.getuid(), {at}]", [["f", []]])[0]["value"][0] for at in range(8)
    }
    assert len(users) == 8
    assert 0 not in users


@pytest.mark.slow
def test_cpu_time_decides_and_sleep_has_the_clock():
    import time

    began = time.monotonic()
    spin, asleep = Box(time_s=0.3).json(), Box(time_s=0.5).json()
    slept = "import time\ndef f(x):\n    time.sleep(x)\n    return x"
    found = calls(asleep, slept, [["f", [0.9]], ["f", [60]]])
    assert [answer["status"] for answer in found] == ["ok", "timeout"]  # 0.9 s by the clock, little of the CPU
    threads = (
        "from threading import Thread\ndef f():\n    for _ in range(8): Thread(target=spin, daemon=True).start()\n"
        "    spin()\ndef spin():\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass"
    )
    assert calls(spin, threads, [["f", []]] * 2) == [{"status": "timeout"}] * 2
    assert runs(spin, "while True:\n    try:\n        while True: pass\n    except BaseException: pass", [""]) == [
        {"status": "timeout"}
    ]
    assert time.monotonic() - began < 60


def test_what_a_program_answers_is_bounded_in_all():
    """One answer of many small things is a hundred times its size, out here."""
    many = "def f(i): return [[] for _ in range(i)]"
    found = calls(Box(output_kb=64, time_s=5.0).json(), many, [["f", [12_000]]] * 5)
    assert [answer["status"] for answer in found] == ["ok", "ok", "output", "output", "output"]
    found = runs(Box(output_kb=64, time_s=5.0).json(), "print('x' * 60_000)", [str(at) for at in range(10)])
    assert [answer["status"] for answer in found] == ["ok"] * 8 + ["output"] * 2


@pytest.mark.slow
def test_time_goes_on_while_the_tests_are_asked():
    tests = instrumented("def check(candidate):\n    assert candidate(lambda: 0) == 1")
    burn = "import time\ndef f(g):\n    for _ in range(8):\n        ends = time.process_time() + 0.2\n"
    burn += "        while time.process_time() < ends: pass\n        g()\n    return 1"
    assert judged(Box(time_s=0.6).json(), tests, burn, "f")["late"] == 1
    assert judged(Box(time_s=5.0).json(), tests, burn, "f")["passed"] == 1


def test_a_keeper_cannot_be_signalled_by_a_socket():
    program = (
        "import fcntl, socket, struct, time\ndef f(pid):\n    a, b = socket.socketpair()\n"
        "    fcntl.ioctl(a, 0x8901, struct.pack('i', pid))\n    fcntl.ioctl(a, 0x5452, struct.pack('i', 1))\n"
        "    b.send(b'x')\n    time.sleep(0.3)\n    return 1"
    )
    found = calls(BOX, program, [["f", [2]], ["f", [3]]])
    assert [answer["message"] for answer in found] == ["OSError: [Errno 38] Function not implemented"] * 2


def test_a_surrogate_in_a_standard_input_is_one_tests_affair():
    found = runs(BOX, "print(len(input()))", ["\ud800", "ab"])
    assert found == [{"status": "ok", "output": "1\n"}, {"status": "ok", "output": "2\n"}]


def test_no_object_crosses_to_tests_whatever_the_program_says():
    """One that is equal to everything would pass them all."""
    program = (
        "import sys\nat = sys._getframe()\nwhile 'self' not in at.f_locals or not hasattr(at.f_locals['self'], "
        "'things'):\n    at = at.f_back\nat.f_locals['self'].things.objects = True\n"
        "class All:\n    def __eq__(self, other): return True\ndef f(x): return All()"
    )
    tests = instrumented("def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3")
    found = judged(BOX, tests, program, "f", 0)
    assert (found["passed"], found["total"]) == (0, 2)
    assert judged(BOX, tests, "def f(x): return x + 1", "f", 0)["passed"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("box", [BOX, PLAIN], ids=["bubblewrap", "process"])
def test_the_time_of_all_tests_is_cpu_time_and_over_once(box):
    small = {**box, "time_s": 1.0, "total_s": 1.5}
    burn = "import time\nends = time.process_time() + 0.4\nwhile time.process_time() < ends: pass\n"
    function = "def f():\n" + indent(burn, "    ")
    ends = "import os\ndef g(): os._exit(3)\n"
    for found in (runs(small, burn, [""] * 8), calls(small, function, [["f", []]] * 8)):
        statuses = [one["status"] for one in found]
        assert statuses == sorted(statuses)  # "ok" before "timeout"
        assert statuses[0] == "ok"
        assert statuses[4:] == ["timeout"] * 4
    between = [["f", []], ["g", []]] * 4  # a program that ends itself has taken what it took
    assert [one["status"] for one in calls(small, function + ends, between)][-1] == "timeout"


@pytest.mark.parametrize("box", [BOX, PLAIN], ids=["bubblewrap", "process"])
def test_what_a_program_leaves_is_gone_however_deep_and_long(box):
    leave = (
        "os.symlink('/', 'link')\nopen('file', 'w').close()\nos.mkdir('shut')\nos.mkdir('shut/in')\n"
        "os.chmod('shut', 0)\nfor _ in range(1500):\n    os.mkdir('n' * 200)\n    os.chdir('n' * 200)\n"
    )
    program = f"import os\nif not input():\n    print(os.listdir())\n    raise SystemExit\n{leave}"
    assert runs(box, program, ["1\n", "\n"])[1] == {"status": "ok", "output": "[]\n"}
