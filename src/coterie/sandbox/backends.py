"""How an interpreter is started in isolation: the command line, the environment, what is given up.

`bubblewrap` gives every program namespaces of its own, a root without the host's files, a bounded
/tmp, no network, and a filter of system calls. `process` is an ordinary process with resource limits
only, for machines where bubblewrap cannot run: a program in it can read files and reach the network.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from coterie.errors import ConfigError, Unavailable
from coterie.sandbox import inside, syscalls

Backend = Literal["bubblewrap", "process"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
INSTALL = "install it (apt-get install bubblewrap), or choose a weaker one by its name: environment.sandbox = 'process'"
FIRST_USER, USERS = 61184, 4096
"""Ids that no person has: a sandbox started by root becomes one of them."""
PYTHON, TMP = "/python", "/tmp"  # noqa: S108
"""Where the interpreter lies inside, and the one place that can be written."""


@dataclass(frozen=True, slots=True)
class Box:
    """A sandbox's isolation and limits.

    time_s: wall time of one request. total_s: CPU and wall time of the whole sandbox. memory_mb: of
    its address space. output_kb: of what a program answers. tmp_mb: of /tmp, a file may be a quarter. threads:
    at once. libraries: packages of this interpreter that programs may import beside the standard library.
    """

    backend: Backend = "bubblewrap"
    time_s: float = 2.0
    total_s: float = 10.0
    memory_mb: int = 512
    output_kb: int = 64
    tmp_mb: int = 16
    threads: int = 16
    libraries: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """As an argument of `scene.call`."""
        return {**asdict(self), "libraries": list(self.libraries)}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Box:
        """From an argument of `scene.call`."""
        return cls(**{**data, "libraries": tuple(data["libraries"])})


@dataclass(slots=True)
class Started:
    """An interpreter that has been started, and what to do when it is over."""

    process: subprocess.Popen[bytes]
    cleanup: Callable[[], None] = field(default=lambda: None)


def start(box: Box) -> Started:
    """Starts an interpreter that will serve; it says `ready` when it can.

    Raises: Unavailable: it could not be started.
    """
    try:
        return _bubblewrap(box) if box.backend == "bubblewrap" else _process(box)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("sandbox", f"{box.backend} did not start: {error}") from error


def missing(backend: Backend) -> str:
    """What keeps a backend from starting on this machine, as far as a look can tell; or nothing."""
    if backend == "process":
        return ""
    if not sys.platform.startswith("linux"):
        return "bubblewrap runs on Linux only; choose a weaker one by its name: environment.sandbox = 'process'"
    if shutil.which("bwrap") is None:
        return f"bubblewrap is missing; {INSTALL}"
    try:
        syscalls.program()
    except (ImportError, OSError, RuntimeError) as error:
        return f"the filter of system calls cannot be made ({error}); install libseccomp2 and pyseccomp"
    return ""


_numbers = itertools.count()


def _bubblewrap(box: Box) -> Started:
    root = os.geteuid() == 0
    names = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if root:
        names += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        names += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    shown = _files(box.libraries)
    folders = sorted(
        {str(parent) for _, place in (*shown, ("", "/dev/null")) for parent in Path(place).parents} - {"/"}
    )
    binds = [word for folder in folders for word in ("--perms", "0755", "--dir", folder)]
    binds += [word for source, place in shown for word in ("--ro-bind", source, place)]
    filtered = syscalls.program()
    reading, writing = os.pipe()
    os.write(writing, filtered)  # a kilobyte or two: a pipe holds it
    os.close(writing)
    try:
        command = [
            "bwrap", *names, "--die-with-parent", "--new-session", "--hostname", "sandbox",
            "--clearenv", *_environment(), *binds, *_hidden(),
            "--perms", "1777", "--size", str(box.tmp_mb << 20), "--tmpfs", TMP,
            "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom",
            "--remount-ro", "/", "--chdir", TMP, "--seccomp", str(reading),
            "--", f"{PYTHON}/bin/python3", *_program(box, FIRST_USER + next(_numbers) % USERS if root else None),
        ]  # fmt: skip
        return Started(_popen(command, pass_fds=(reading,)))
    finally:
        os.close(reading)


def _process(box: Box) -> Started:
    folder = tempfile.mkdtemp(prefix="coterie-")
    libraries = [str(_package(name).parent) for name in box.libraries]
    try:
        process = _popen([sys.executable, *_program(box, None, libraries)], cwd=folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Started(process, lambda: shutil.rmtree(folder, ignore_errors=True))


def _popen(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """A process of a session of its own: Ctrl-C is this process's alone, and no program's outcome."""
    pipe = subprocess.PIPE
    return subprocess.Popen[bytes](
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT, bufsize=0, start_new_session=True, **more
    )


def _program(box: Box, uid: int | None, libraries: list[str] | None = None) -> list[str]:
    """The interpreter's arguments: isolated, without site, the program as source, its settings."""
    settings = {
        "time_s": box.time_s,
        "output_bytes": box.output_kb << 10,
        "uid": uid,
        "libraries": [f"{PYTHON}/libraries"] if libraries is None and box.libraries else libraries or [],
        "limits": {
            "RLIMIT_AS": box.memory_mb << 20,
            "RLIMIT_CPU": int(box.total_s) + 1,
            "RLIMIT_FSIZE": box.tmp_mb << 18,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_NPROC": box.threads,
            "RLIMIT_CORE": 0,
        },
    }
    if box.backend == "process":
        del settings["limits"]["RLIMIT_NPROC"]  # it would count all of the user's own processes
    return ["-s", "-P", "-S", "-B", "-c", _source(), json.dumps(settings)]


ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""All that a program finds there: with it, a set has the same order in every sandbox."""


@lru_cache
def _environment() -> tuple[str, ...]:
    return tuple(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value))


_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@lru_cache
def _source() -> str:
    return Path(inside.__file__).read_text(encoding="utf-8") + "\nmain()\n"


@lru_cache
def _hidden() -> tuple[str, ...]:
    """Covers the packages that lie in the standard library's folder."""
    folders = (name for name in ("site-packages", "dist-packages") if Path(sysconfig.get_path("stdlib"), name).exists())
    covered = [f"{PYTHON}/lib/{_VERSION}/{name}" for name in folders]
    return tuple(word for one in covered for word in ("--size", "4096", "--tmpfs", one, "--remount-ro", one))


@lru_cache
def _files(libraries: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What is shown inside, and where: the interpreter, its standard library, the shared objects they load."""
    executable = str(Path(sys.executable).resolve())
    standard = sysconfig.get_path("stdlib")
    shown = [(executable, f"{PYTHON}/bin/python3"), (standard, f"{PYTHON}/lib/{_VERSION}")]
    objects = [executable, *map(str, Path(standard).glob("lib-dynload/*.so"))]
    for name in libraries:
        package = _package(name)
        folders = [folder for folder in (package, package.with_name(f"{name}.libs")) if folder.exists()]
        shown += [(str(folder), f"{PYTHON}/libraries/{folder.name}") for folder in folders]
        objects += map(str, package.rglob("*.so"))
    text = subprocess.run(["ldd", *objects], capture_output=True, text=True, check=False).stdout
    loaded = sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.MULTILINE)))
    inner = str(package_root()) if libraries else ""
    shown += [(one, one) for one in loaded if not (inner and one.startswith(inner))]
    return tuple(shown)


def package_root() -> Path:
    """Where this interpreter's packages lie."""
    return Path(sysconfig.get_path("purelib"))


def _package(name: str) -> Path:
    """The folder or file of an installed package. Raises: ConfigError: there is none."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(f"environment.libraries: there is no package '{name}' here; install it, or leave it out")
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin
