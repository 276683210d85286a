"""Starts a keeper in isolation: its command line, its environment and the privileges that it drops.

`bubblewrap` gives every program namespaces of its own, a root without the host's files, a bounded /tmp, no network,
and a filter of system calls. `process` is an ordinary process with resource limits only, for machines where
bubblewrap cannot run: a program in it can read and write what its user can, the trainer's environment in /proc
included, signal that user's processes, and reach the network.
"""

from __future__ import annotations

import base64
import json
import marshal
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from coterie.errors import ConfigError, Unavailable
from coterie_worlds.programs import Backend
from coterie_worlds.sandbox import cgroups, eye, keeper, plain, program, remote, syscalls, wire

BACKENDS: tuple[Backend, ...] = get_args(Backend)
INSTALL = "install it (apt-get install bubblewrap), or choose a weaker one by its name: environment.sandbox = 'process'"
FIRST_USER, USERS = 1 << 30, 1 << 29
"""First user id that no person has, and how many follow: a sandbox started by root becomes one of them.
It is drawn at random, so that no two sandboxes of any processes share a quota of the kernel's."""
FEW_USERS = range(61184, 65280)
"""User ids that are left where the system knows no others, as in some containers."""
INODES = 4096
"""Maximum number of files and folders in /tmp."""
WALL = 4.0
"""Limit by the clock of a program that sleeps, in multiples of the limit of CPU time."""
PYTHON, TMP = "/python", "/tmp"  # noqa: S108
"""Folder of the interpreter inside a sandbox, and the only folder that can be written there."""


@dataclass(frozen=True, slots=True)
class Box:
    """Isolation and limits of a sandbox.

    time_s: CPU time of one test; the clock's limit is four times that, and ten times what CPU time it takes on top.
    total_s: the same of all tests of a program.
    memory_mb: of a program, its threads' stacks included. stdin_kb, output_kb: of what a program reads, and of what
    it writes or answers. tmp_mb: of /tmp. threads: at once. libraries: packages of this interpreter that programs
    may import beside the standard library.
    """

    backend: Backend = "bubblewrap"
    time_s: float = 2.0
    total_s: float = 45.0
    memory_mb: int = 512
    stdin_kb: int = 32 << 10
    output_kb: int = 8 << 10
    tmp_mb: int = 16
    threads: int = 16
    libraries: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float:
        """Seconds by the clock that one test may take which only sleeps."""
        return WALL * self.time_s

    @property
    def longest_s(self) -> float:
        """Seconds by the clock that one test may take which works as much as it may."""
        return (WALL + keeper.STARVED) * self.time_s

    @property
    def total_wall_s(self) -> float:
        """Seconds by the clock that all tests of a program may take."""
        return (WALL + keeper.STARVED) * self.total_s

    def json(self) -> dict[str, Any]:
        """Returns the box as an argument of `scene.call`."""
        return {**asdict(self), "libraries": list(self.libraries)}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Box:
        """Returns the box of an argument of `scene.call`."""
        return cls(**{**data, "libraries": tuple(data["libraries"])})


@dataclass(slots=True)
class Started:
    """A keeper that has been started. group: its control group, if it has one. folder: to be removed afterwards."""

    process: subprocess.Popen[bytes]
    group: cgroups.ControlGroup | None = None
    folder: str = ""

    def starved(self) -> bool:
        """Returns True if it was ended for want of memory."""
        return self.group is not None and self.group.starved()

    def cleanup(self) -> None:
        """Removes the control group and the folder, once the process has ended."""
        if self.group:
            self.group.remove()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def start(box: Box) -> Started:
    """Starts the keeper of a sandbox, which says `ready` when it can serve.

    Raises:
        Unavailable: it could not be started.
    """
    try:
        return _bubblewrap(box) if box.backend == "bubblewrap" else _process(box)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("sandbox", f"{box.backend} did not start: {error}") from error


def missing(backend: Backend) -> str:
    """Returns the reason why a backend cannot start on this machine, as far as a look can tell; "" if there is none."""
    if backend == "process":
        return ""
    if not sys.platform.startswith("linux"):
        return "bubblewrap runs on Linux only; choose a weaker one by its name: environment.sandbox = 'process'"
    if not path_of("bwrap"):
        return f"bubblewrap is missing; {INSTALL}"
    try:
        syscalls.of_programs()
    except (ImportError, OSError, RuntimeError) as error:
        return f"the filter of system calls cannot be made ({error}); install libseccomp2 and pyseccomp"
    return ""


def path_of(name: str) -> str:
    """Returns the whole path of a program: the system's, else one in a folder that PATH names whole; "" if none.

    An entry such as "." would start what lies in the working folder, such as a stranger's run.
    """
    whole = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    return shutil.which(name, path=os.pathsep.join([os.defpath, *whole])) or ""


def _bubblewrap(box: Box) -> Started:
    root = os.geteuid() == 0
    names = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    names += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]  # to mount /tmp; the keeper gives it up at once
    if root:
        names += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        names += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    shown = _files(box.libraries)
    folders = sorted(
        {str(parent) for _, place in (*shown, ("", "/dev/null")) for parent in Path(place).parents} - {"/"}
    )
    binds = [word for folder in folders for word in ("--perms", "0755", "--dir", folder)]
    binds += [word for source, place in shown for word in ("--ro-bind", source, place)]
    reading, writing = os.pipe()
    os.write(writing, syscalls.of_keepers())  # a kilobyte or two: a pipe holds it
    os.close(writing)
    try:
        command = [
            path_of("bwrap"), *names, "--die-with-parent", "--new-session", "--hostname", "sandbox",
            "--clearenv", *_environment(), *binds, *_hidden(),
            "--perms", "1777", "--size", str(box.tmp_mb << 20), "--tmpfs", TMP,
            "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom",
            "--remount-ro", "/", "--chdir", "/", "--seccomp", str(reading),
            "--", f"{PYTHON}/bin/python3", *_keeper(box, TMP, _user() if root else None),
        ]  # fmt: skip
        group = cgroups.group(box)
        started = Started(_popen(group.around(command) if group else command, pass_fds=(reading,)), group)
    finally:
        os.close(reading)
    return started


def _process(box: Box) -> Started:
    folder = f"{tempfile.gettempdir()}/coterie-{secrets.token_hex(8)}"  # the keeper makes it and outlives this process
    libraries = [str(_package(name).parent) for name in box.libraries]
    return Started(_popen([sys.executable, *_keeper(box, folder, None, libraries)]), folder=folder)


def _user() -> int:
    """Returns a user id, drawn at random, that nothing else on this machine should have."""
    return FIRST_USER + secrets.randbelow(USERS) if _knows(FIRST_USER + USERS) else secrets.choice(FEW_USERS)


@lru_cache
def _knows(user: int) -> bool:
    """Returns True if this process's namespace has such a user."""
    ranges = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(first <= user < first + count for first, _, count in ranges)


def _popen(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own: Ctrl-C reaches this process alone, and is no program's outcome."""
    pipe = subprocess.PIPE
    return subprocess.Popen[bytes](
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT, bufsize=0, start_new_session=True, **more
    )


def _keeper(box: Box, folder: str, user: int | None, libraries: list[str] | None = None) -> list[str]:
    """Returns the interpreter's arguments: isolated, without site, the keeper as code, its settings."""
    alone = box.backend == "bubblewrap"
    settings = {
        "cpu_s": box.time_s,
        "wall_s": box.wall_s,
        "total_s": box.total_s,
        "output_bytes": box.output_kb << 10,
        "folder": folder,
        "tmp": [box.tmp_mb << 20, INODES] if alone else None,
        "user": user,
        "filter": syscalls.of_programs().hex() if alone else "",
        "libraries": [f"{PYTHON}/libraries"] if libraries is None and box.libraries else libraries or [],
        "limits": {
            "RLIMIT_AS": box.memory_mb << 20,
            "RLIMIT_CPU": int(box.total_s) + 2,
            "RLIMIT_FSIZE": max(box.output_kb << 10, box.tmp_mb << 18) + 1,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_NPROC": box.threads + 1,
            "RLIMIT_CORE": 0,
        },
    }
    if not alone:
        del settings["limits"]["RLIMIT_NPROC"]  # the limit would count all processes of this user
    return ["-s", "-P", "-S", "-B", "-c", _code(), json.dumps(settings)]


ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""All environment variables of a program: with this one, a set has the same order in every sandbox."""


@lru_cache
def _environment() -> tuple[str, ...]:
    return tuple(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value))


_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@lru_cache
def _code() -> str:
    """Returns code that loads the modules which run inside, compiled here, for the interpreter there is the same."""
    made = {
        module.__name__: Path(module.__file__ or "").read_bytes()
        for module in (wire, plain, eye, remote, program, keeper)
    }
    codes = [(name, compile(source, f"{name}.py", "exec", optimize=2)) for name, source in made.items()]
    packed = base64.b64encode(marshal.dumps(codes)).decode()
    return (
        "import binascii, marshal, sys\n"
        f"for name, code in marshal.loads(binascii.a2b_base64({packed!r})):\n"
        "    sys.modules[name] = module = type(sys)(name)\n"
        "    exec(code, module.__dict__)\n"
        "    package, _, short = name.rpartition('.')\n"
        "    setattr(sys.modules.setdefault(package, type(sys)(package)), short, module)\n"
        "module.main()"
    )


@lru_cache
def _hidden() -> tuple[str, ...]:
    """Returns bubblewrap's arguments that cover the packages in the standard library's folder."""
    folders = (name for name in ("site-packages", "dist-packages") if Path(sysconfig.get_path("stdlib"), name).exists())
    covered = [f"{PYTHON}/lib/{_VERSION}/{name}" for name in folders]
    return tuple(word for path in covered for word in ("--size", "4096", "--tmpfs", path, "--remount-ro", path))


@lru_cache
def _files(libraries: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the files that are shown inside, and their places: interpreter, standard library, shared objects."""
    executable = str(Path(sys.executable).resolve())
    standard = sysconfig.get_path("stdlib")
    shown = [(executable, f"{PYTHON}/bin/python3"), (standard, f"{PYTHON}/lib/{_VERSION}")]
    # tkinter has no screen here, and a third of all shared objects belong to it
    objects = [
        executable,
        *(str(library) for library in Path(standard).glob("lib-dynload/*.so") if "_tkinter" not in library.name),
    ]
    for name in libraries:
        package = _package(name)
        folders = [folder for folder in (package, package.with_name(f"{name}.libs")) if folder.exists()]
        shown += [(str(folder), f"{PYTHON}/libraries/{folder.name}") for folder in folders]
        objects += map(str, package.rglob("*.so"))
    text = subprocess.run([path_of("ldd"), *objects], capture_output=True, text=True, check=False).stdout
    loaded = sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.MULTILINE)))
    inner = str(package_root()) if libraries else ""
    shown += [(path, path) for path in loaded if not (inner and path.startswith(inner))]
    return tuple(shown)


def package_root() -> Path:
    """Returns the folder of this interpreter's packages."""
    return Path(sysconfig.get_path("purelib"))


def _package(name: str) -> Path:
    """Returns the folder or file of an installed package. Raises: ConfigError: there is none."""
    if (
        not name.isidentifier()
    ):  # to look for a module in a package would import the package, whose code may be anybody's
        raise ConfigError(f"environment.libraries names '{name:.80}'; name a package alone, such as 'numpy'")
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(f"environment.libraries: there is no package '{name}' here; install it, or leave it out")
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin
