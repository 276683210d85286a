"""Every attack is contained, none passes, and the next request is served."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from coterie_worlds.coding.problems import right
from coterie_worlds.coding.problems.formats import instrumented
from coterie_worlds.sandbox import Box, calls, judged, runs
from coterie_worlds.sandbox.backends import missing
from tests.sandbox.security.attacks import ATTACKS, Attack

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
BOX = Box(time_s=1.0, total_s=3.0, memory_mb=256, tmp_mb=4, output_kb=64).json()
HONEST = "def f(x):\n    return x + 1"
TESTS = instrumented("def check(candidate):\n    assert candidate(41) == 42\n    assert candidate(1) == 2\n")


def marked(attacks: list[Attack]) -> list:
    """Those that may run until their time is over take seconds each."""
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] if "timeout" in one.allowed else []) for one in attacks
    ]


@pytest.mark.parametrize("attack", marked(ATTACKS))
def test_an_attack_is_contained_and_does_not_pass(attack: Attack):
    answers = calls(BOX, attack.program, [["f", [6]], ["f", [41]]])
    assert {answer["status"] for answer in answers} <= attack.allowed | {"refused"}, answers
    assert not all(right("f", wanted, answer) for wanted, answer in zip(("7", "42"), answers, strict=True))
    assert calls(BOX, HONEST, [["f", [1]]]) == [{"status": "ok", "value": 2}]


CHEATS = [attack for attack in ATTACKS if attack.allowed & {"ok", "refused"} or "exit" in attack.name]


@pytest.mark.parametrize("attack", marked(CHEATS))
def test_no_attack_passes_test_code(attack: Attack):
    """The tests run in a sandbox that the program never enters."""
    answer = judged(BOX, TESTS, attack.program, "f")
    assert not (answer["status"] == "ok" and answer["passed"] == answer["total"] > 0), answer


@pytest.mark.parametrize(
    "program",
    [
        "import builtins\nbuiltins.AssertionError = type('X', (BaseException,), {})\ndef f(x): return 0",
        "import sys\ncheck = lambda candidate: None\n__record__ = lambda test: None\ndef f(x): return 0",
        "import sys\ndef f(x):\n    sys._getframe(1).f_locals.update(passed=9, total=9)\n    return 0",
        "def f(x):\n    raise AssertionError",
        "assert False",
    ],
)
def test_asserts_cannot_be_reached_from_the_program(program: str):
    answer = judged(BOX, TESTS, program, "f")
    assert answer.get("passed", 0) == 0


def test_the_honest_program_passes_test_code():
    found = judged(BOX, TESTS, HONEST, "f")
    assert {key: found[key] for key in ("status", "passed", "total")} == {"status": "ok", "passed": 2, "total": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("while True: print('x' * 1000)", "output"),
        ("print('x' * 70_000)", "output"),
        ("import sys\nsys.exit(1)", "error"),
        ("import os\nos._exit(170)", "error"),
        ("while True: pass", "timeout"),
        ("raise ValueError", "error"),
        ("import sys\nsys.stdin = None\nprint(input())", "error"),
    ],
)
def test_whole_programs_are_contained_too(program: str, status: str):
    first, second = runs(BOX, program, ["1", "2"])
    assert first["status"] == status
    assert second["status"] != "ok"
    assert runs(BOX, "import sys\nsys.exit(print(int(input()) + 1))", ["41"]) == [{"status": "ok", "output": "42\n"}]


def test_the_environment_holds_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    from coterie_worlds.sandbox.worker import SandboxWorker

    worker = SandboxWorker(Box())
    worker.begin()
    worker.load("import os\ndef f(): return dict(os.environ)")
    names = worker.call(name="f", args=[], kwargs={})
    worker.close()
    assert "hf_secret" not in str(names)
    assert {pair[0] for pair in names["value"]["dict"]} <= {"PWD", "LC_CTYPE", "PYTHONHASHSEED"}


def test_two_requests_share_nothing():
    leave = "def f(x):\n    open('/tmp/left', 'w').write('x')\n    return x"
    look = "import os\ndef f(x):\n    return os.listdir('/tmp')"
    assert calls(BOX, leave, [["f", [1]]])[0]["status"] == "ok"
    assert calls(BOX, look, [["f", [1]]]) == [{"status": "ok", "value": []}]


LOOK = """
import os
def f():
    found = []
    for folder, _, _ in os.walk('/'):
        try:
            open(folder + '/x', 'w').close()
            found.append(folder)
        except OSError:
            pass
    return [os.getuid(), *found]
"""
"""Where a program can write."""


MANY = """
import os
def f():
    made = 0
    try:
        while True:
            os.mkdir(f'/tmp/{made}')
            made += 1
    except OSError:
        return made
"""
"""How many folders a program can make."""


def test_nothing_but_tmp_can_be_written():
    (answer,) = calls(Box(time_s=5.0).json(), LOOK, [["f", []]])
    assert answer["value"][1:] == ["/tmp"]


def test_only_the_interpreter_is_there():
    program = "import os\ndef f(path): return sorted(os.listdir(path))"
    packages = f"/python/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    folders = ("/", "/python", "/dev", packages)
    root, python, dev, site = calls(BOX, program, [["f", [folder]] for folder in folders])
    assert set(root["value"]) <= {"dev", "lib", "lib64", "python", "root", "tmp", "usr"}
    assert python["value"] == ["bin", "lib"]
    assert dev["value"] == ["null", "urandom"]
    assert site["value"] == []


def test_named_libraries_are_there_and_others_are_not():
    numpy = pytest.importorskip("numpy")
    box = Box(memory_mb=2048, libraries=("numpy",)).json()
    program = "def f(name):\n    return __import__(name).__version__"
    found, other = calls(box, program, [["f", ["numpy"]], ["f", ["torch"]]])
    assert found == {"status": "ok", "value": numpy.__version__}
    assert other["status"] == "error"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_can_use_it_too():
    """With the system's interpreter, for this one may lie where others cannot read."""
    import subprocess

    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    new_enough = "import sys; sys.exit(sys.version_info < (3, 11))"
    if python is None or subprocess.run([python, "-c", new_enough], check=False).returncode:
        pytest.skip("no system interpreter")
    import pyseccomp

    script = (
        "import sys, types; sys.path[:0] = sys.argv[1:]\n"
        "package = types.ModuleType('coterie'); package.__path__ = [sys.argv[1] + '/coterie']\n"
        "sys.modules['coterie'] = package\n"
        "from coterie_worlds.sandbox import Box, calls, judged, runs\n"
        "box = Box(time_s=5.0).json()\n"
        f"print(calls(box, {LOOK!r}, [['f', []]]))\n"
        "ends = runs(box, 'import os\\nos._exit(int(input()))', [str(code) for code in range(0, 256, 5)])\n"
        "print(sorted({one['status'] for one in ends}), len(ends))\n"
        f"print(calls(box, {MANY!r}, [['f', []]])[0]['value'] < 4096)\n"
        f"print(judged(box, {TESTS!r}, {HONEST!r}, 'f')['passed'])"
    )
    source, library = Path(__file__).parents[3] / "src", Path(pyseccomp.__file__).parent
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [*somebody, python, "-c", script, str(source), str(library)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    told = ["[{'status': 'ok', 'value': [65534, '/tmp']}]", "['error', 'ok'] 52", "True", "2"]
    assert found.stdout.splitlines() == told, found.stderr
