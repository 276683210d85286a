# ruff: noqa: E501  (a line is a program)
"""Programs that try to get out, to take the machine down, or to pass without solving anything.

Each is asked for `f(x)`, which should return x + 1, and is given what it can know: the argument. None
may pass, none may change anything outside, and the next request must be served.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attack:
    """A program and the statuses that may come of it."""

    name: str
    program: str
    allowed: frozenset[str]


def _attack(name: str, allowed: str, body: str, top: str = "") -> Attack:
    """An attack from inside f; `top` runs when the program is loaded."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return Attack(name, f"{top}\ndef f(x):\n{lines}\n", frozenset(allowed.split()))


def _load(name: str, allowed: str, top: str) -> Attack:
    return Attack(name, top, frozenset(allowed.split()))


ATTACKS = [
    # exhaustion
    _attack("fork bomb", "error", "import os\nwhile True: os.fork()"),
    _attack("vfork and exec", "error", "import subprocess\nreturn subprocess.run(['/python/bin/python3', '-c', 'print(1)']).returncode"),
    _attack("posix_spawn", "error", "import os\nreturn os.posix_spawn('/python/bin/python3', ['python3', '-c', ''], {})"),
    _attack("multiprocessing", "error", "import multiprocessing\np = multiprocessing.Process(target=print); p.start(); p.join()\nreturn p.exitcode"),
    _attack("thread bomb", "error timeout memory", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()"),
    _attack("memory bomb, list", "memory", "a = []\nwhile True: a.append(bytearray(10_000_000))"),
    _attack("memory bomb, string", "memory", "return len('x' * (1 << 40))"),
    _attack("memory bomb, integer", "timeout memory error", "return 7 ** 7 ** 9"),
    _attack("disk bomb, one file", "output error", "with open('/tmp/big', 'wb') as file:\n    while True: file.write(b'0' * (1 << 20))"),
    _attack("disk bomb, many files", "error output", "n = 0\nwhile True:\n    n += 1\n    with open(f'/tmp/{n}', 'wb') as file: file.write(b'0' * 60_000)"),
    _attack("inode bomb", "error timeout", "import os\nn = 0\nwhile True:\n    n += 1\n    os.mkdir(f'/tmp/d{n}')"),
    _attack("descriptor bomb", "error", "import os\nwhile True: os.dup(0)"),
    _attack("pipe bomb", "error", "import os\nwhile True: os.pipe()"),
    _attack("busy loop", "timeout", "while True: pass"),
    _attack("busy loop that catches everything", "timeout", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    _attack("sleep", "timeout", "import time\ntime.sleep(1000)"),
    _attack("sleep with signals blocked", "timeout", "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(1000)"),
    _attack("alarm handler replaced", "timeout", "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"),
    _attack("deep recursion", "error", "return f(x)"),
    _attack("deep recursion without limit", "error timeout memory", "import sys\nsys.setrecursionlimit(10 ** 9)\nreturn f(x)"),
    _attack("catastrophic regular expression", "timeout", "import re\nreturn bool(re.match('(a+)+$', 'a' * 40 + 'b'))"),
    # endless or huge answers
    _attack("endless output to standard output", "ok timeout error", "import os\nwhile True: os.write(1, b'x' * 65536)"),
    _attack("endless output to every descriptor", "output error refused timeout", "import os\nwhile True:\n    for n in range(3, 20):\n        try: os.write(n, b'x' * 65536)\n        except OSError: pass"),
    _attack("huge value", "output memory error timeout", "return ['x' * 1000] * 100_000"),
    _attack("nested value", "refused", "a = []\nfor _ in range(10_000): a = [a]\nreturn a"),
    _attack("value that contains itself", "refused", "a = []\na.append(a)\nreturn a"),
    _attack("huge integer", "error refused output", "return 10 ** 100_000"),
    # the host
    _attack("host's passwords", "error", "return open('/etc/passwd').read()"),
    _attack("host's home", "error", "import os\nreturn os.listdir('/root') + os.listdir('/home')"),
    _attack("host's working folder", "error", "import os\nreturn os.listdir('/work')"),
    _attack("proc of the parent", "error", "return open('/proc/1/environ').read()"),
    _attack("proc of itself", "error", "return open('/proc/self/mounts').read()"),
    _attack("sys", "error", "import os\nreturn os.listdir('/sys')"),
    _attack("raw disk", "error", "import os\nreturn os.open('/dev/vda', os.O_RDONLY)"),
    _attack("make a device", "error", "import os, stat\nos.mknod('/tmp/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))"),
    _attack("write the interpreter", "error", "open('/python/lib/python3.11/json/__init__.py', 'a').write('x')"),
    _attack("write the root", "error", "open('/evil', 'w').write('x')"),
    _attack("symbolic link to the host", "error", "import os\nos.symlink('/etc/passwd', '/tmp/link')\nreturn open('/tmp/link').read()"),
    _attack("symbolic link upwards", "error", "import os\nos.symlink('../../../../../../etc/hostname', '/tmp/up')\nreturn open('/tmp/up').read()"),
    _attack("hard link to the interpreter", "error", "import os\nos.link('/python/bin/python3', '/tmp/python')"),
    _attack("network, TCP", "error", "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)"),
    _attack("network, loopback", "error", "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)"),
    _attack("network, UDP", "error", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))"),
    _attack("network, names", "error", "import socket\nreturn socket.gethostbyname('example.org')"),
    _attack("unix socket", "error", "import socket\nsocket.socket(socket.AF_UNIX).connect('/run/docker.sock')"),
    # other processes, privileges
    _attack("signal to the parent", "error", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"),
    _attack("signal to everybody", "error", "import os, signal\nos.kill(-1, signal.SIGKILL)"),
    _attack("signal to its group", "error", "import os, signal\nos.killpg(0, signal.SIGKILL)"),
    _attack("become root", "error", "import os\nos.setresuid(0, 0, 0)"),
    _attack("setuid program", "error", "import os\nopen('/tmp/su', 'wb').write(open('/python/bin/python3', 'rb').read(50_000))\nos.chmod('/tmp/su', 0o4755)\nos.chown('/tmp/su', 0, 0)"),
    _attack("raise the limits", "error", "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))"),
    _attack("ptrace", "error", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.ptrace(16, 1, 0, 0) == -1: raise OSError(ctypes.get_errno())\nreturn x + 1"),
    _attack("unshare", "error", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.unshare(0x10000000) == -1: raise OSError(ctypes.get_errno())\nreturn x + 1"),
    _attack("mount", "error", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == -1: raise OSError(ctypes.get_errno())\nreturn x + 1"),
    _attack("chroot", "error", "import os\nos.chroot('/tmp')"),
    _attack("memfd", "error", "import os\nreturn os.memfd_create('x')"),
    _attack("daemon", "error timeout", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\nreturn x + 1"),
    _attack("crash", "error", "import ctypes\nreturn ctypes.string_at(0)"),
    _attack("abort", "error", "import os\nos.abort()"),
    # passing without solving
    _attack("sys.exit(0)", "error", "import sys\nsys.exit(0)"),
    _attack("os._exit(0)", "error", "import os\nos._exit(0)"),
    _load("sys.exit(0) when loaded", "error", "import sys\nsys.exit(0)\ndef f(x): return 0"),
    _load("os._exit(0) when loaded", "error", "import os\nos._exit(0)"),
    _attack("always equal", "refused", "class Same:\n    def __eq__(self, other): return True\n    def __hash__(self): return 1\nreturn Same()"),
    _attack("an integer that is always equal", "ok", "class Same(int):\n    def __eq__(self, other): return True\nreturn Same(5)"),
    _attack("a list that is always equal", "ok", "class Same(list):\n    def __eq__(self, other): return True\nreturn Same()"),
    _attack("a type that lies about its name", "refused", "Same = type('int', (), {'__eq__': lambda self, other: True})\nreturn Same()"),
    _attack("true for one", "ok", "return True"),
    _attack("forged result on standard output", "ok", "print('{\"status\": \"ok\", \"value\": 42}')\nreturn 0"),
    _attack("forged result on every descriptor", "ok refused error", "import os\nfor n in range(3, 20):\n    try: os.write(n, b'{\"status\": \"ok\", \"passed\": 9, \"total\": 9, \"value\": null}\\n')\n    except OSError: pass\nos._exit(0)"),
    _attack("forged, without a value", "ok refused error", "import os\nfor n in range(3, 20):\n    try: os.write(n, b'{\"status\": \"ok\"}\\n')\n    except OSError: pass\nos._exit(0)"),
    _attack("not JSON", "refused error", "import os\nfor n in range(3, 20):\n    try: os.write(n, b'\\xff\\xfe{\\n')\n    except OSError: pass\nos._exit(0)"),
    _attack("deep JSON", "refused output error", "import os\nfor n in range(3, 20):\n    try: os.write(n, b'{\"status\": \"ok\", \"value\": ' + b'[' * 60_000 + b'\\n')\n    except OSError: pass\nos._exit(0)"),
    _attack("lone surrogate", "refused error", "import os\nfor n in range(3, 20):\n    try: os.write(n, b'{\"status\": \"ok\", \"value\": \"\\\\ud800\"}\\n')\n    except OSError: pass\nos._exit(0)"),
    _attack("json replaced", "ok refused error", "return 0", top="import json\njson.dumps = lambda *a, **k: '{\"status\": \"ok\", \"value\": 42}'"),
    _attack("the server replaced", "ok error refused", "return 0", top="import gc\nfor one in gc.get_objects():\n    if type(one).__name__ == 'Inside': one.call = lambda name, args: {'value': 42, 'passed': 9, 'total': 9}"),
    _attack("unicode look-alikes", "error", "return \uff58 + 1 if False else x\u0331"),
    _attack("a name with a NUL", "error", "return globals()['f\\0']"),
    _attack("an exception that cannot be written", "error", "class Bad(Exception):\n    def __str__(self): raise SystemExit(0)\nraise Bad"),
    _attack("an exception with a huge message", "error", "raise ValueError('x' * 10_000_000)"),
    _attack("a generator instead of a value", "refused", "yield x + 1"),
    _load("nothing", "error", ""),
    _load("a syntax error", "error", "def f(x: return"),
    _load("parentheses without end", "error memory", "(" * 50_000),
    _load("minuses without end", "error memory", "f = " + "-" * 50_000 + "1"),
    _load("a NUL byte", "refused", "def f(x):\n    return x + 1\n\0"),
    _load("a program without end", "refused", "x = 1\n" * 50_000),
]  # fmt: skip
