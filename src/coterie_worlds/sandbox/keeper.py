"""The keeper, the first process in a sandbox: it forks one process per program, watches it, and reports how it ended.

The keeper neither runs nor parses model-written data: it forwards a program's output as text, and the host parses it.
So the report of how a program ended, and what it cost, comes from a process that the program cannot imitate. A
program's process cannot create others, and it has ended before the next one starts.

Messages, a JSON line each. From the host: `begin` (a program that will answer), `tell` (a line for it), `run` (a
whole program with a standard input). To the host: `said` (its line), `ran`, or `ended`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import select
import stat
import struct
import sys
import time
from _signal import SIGKILL, SIGXCPU, SIGXFSZ  # pyright: ignore[reportMissingImports]  # signal itself starts slowly

from coterie_worlds.sandbox import program
from coterie_worlds.sandbox.wire import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PAUSE_S = 0.0005
"""Seconds between the first two looks at a program that runs; each pause is a little longer than the last."""
LONGEST_PAUSE_S = 0.01
LONGEST_LOOK_S = 0.2
"""Maximum seconds between two looks at a program's time: with several threads it runs faster than the clock."""
STARVED = 10.0
"""Seconds by the clock that a second of CPU time may take beyond the clock's limit."""
MOST_SAID = 500
"""Number of bytes that are kept of the end of a program's standard error."""
MOVED = "moved "
"""Prefix, before a number, of the names of files that have been moved up to be removed."""
MESSAGE_BYTES = 4096
"""Maximum number of bytes of a line beside its value."""


class Become(BaseException):
    """Raised in a fork, so that it leaves all that was the keeper's and begins the program."""

    def __init__(self, begin: Callable[[], None]) -> None:
        super().__init__()
        self.begin = begin


class Keeper:
    """The keeper of a sandbox, which forks programs, one at a time.

    Args:
        settings: cpu_s and wall_s of a request, total_s of CPU time of all, output_bytes, folder that programs
            write in, limits, filter.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.requests = os.fdopen(os.dup(0), "rb")
        self.host = os.fdopen(os.dup(1), "wb")
        self.pid = 0
        self.to, self.of, self.unread = -1, -1, b""
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)

    def serve(self, ready: dict[str, Any]) -> None:
        """Answers the host's requests until the host is gone."""
        try:
            self.say(ready)
            for line in self.requests:
                request = loads(line.decode())
                getattr(self, request.pop("do"))(**request)
        except BrokenPipeError:
            pass
        self.end()
        self.clean()

    def say(self, message: dict[str, Any], data: bytes = b"") -> None:
        """Sends one line, and the bytes that it announces."""
        self.host.write(dumps(message).encode() + b"\n" + data)
        self.host.flush()

    def begin(self, **how: Any) -> None:
        """Starts a program that answers, instead of the one before, and sends the host its first line."""
        self.end()
        self.clean()
        (theirs, self.to), (self.of, answers) = os.pipe(), os.pipe()

        def become() -> None:
            program.serve(theirs, answers, how)

        self.fork({}, [theirs, answers], become)
        os.close(theirs)
        os.close(answers)
        self.unread = b""
        self.watch = self.watched()
        self.next_line()

    def watched(self) -> TimeLeft:
        """Returns a watch of the program's time from now: that of one test, and no more than is left of all."""
        ended = resource.getrusage(
            resource.RUSAGE_CHILDREN
        )  # these are programs that have ended; the keeper has no other children
        left = self.settings["total_s"] - ended.ru_utime - ended.ru_stime - cpu_of(self.pid)
        return TimeLeft(self.pid, min(self.settings["cpu_s"], left), self.settings["wall_s"])

    def tell(self, line: str, fresh: bool) -> None:
        """Hands a line to the program and sends the host its next one. fresh: its CPU time begins anew."""
        if self.pid:
            ends = self.watch.cpu_ends
            self.watch = self.watched()
            self.watch.cpu_ends = self.watch.cpu_ends if fresh else ends
            data = line.encode() + b"\n"
            os.set_blocking(self.to, False)
            self.next_line(data)
        else:
            self.say({"ended": {"status": "error", "code": 0}})

    def next_line(self, data: bytes = b"") -> None:
        """Sends the host the program's next line, once it has been given some bytes; or how it ended."""
        longest = self.settings["output_bytes"] + MESSAGE_BYTES
        while b"\n" not in self.unread:
            left = self.watch.left()
            if left <= 0:
                return self.ended({"status": "timeout"})
            readable, writable, _ = select.select([self.of], [self.to] if data else [], [], left)
            try:
                if writable:
                    data = data[os.write(self.to, data) :]
                if not readable:
                    continue
                chunk = os.read(self.of, 1 << 16)
            except BlockingIOError:
                continue
            except BrokenPipeError:
                chunk = b""
            self.unread += chunk
            if not chunk:
                return self.ended()
            if len(self.unread) > longest:
                return self.ended({"status": "output"})
        line, _, self.unread = self.unread.partition(b"\n")
        return self.say({"said": line.decode("utf-8", "replace")})

    def ended(self, why: dict[str, Any] | None = None) -> None:
        """Tells the host how the program ended: as given, or by itself."""
        code = self.end(0.0 if why else 0.2)  # a program that has closed its pipe is about to end by itself
        self.say({"ended": why or {"status": "error", "code": code}})

    def end(self, patience_s: float = 0.0) -> int:
        """Ends the program, if there is one.

        Returns:
            its exit status, or minus the signal.
        """
        if not self.pid:
            return 0
        for number in (self.to, self.of):
            os.close(number)
        self.to = self.of = -1
        pid, self.pid = self.pid, 0
        _, status = reaped(pid, TimeLeft(pid, patience_s, patience_s))
        return os.waitstatus_to_exitcode(status)

    def run(self, source: str, stdin: str) -> None:
        """Runs a whole program with files for its standard streams, and sends the host its output, or how it ended."""
        self.end()
        self.clean()
        streams = [temporary() for _ in range(3)]
        view = memoryview(stdin.encode("utf-8", "replace"))
        while view:
            view = view[os.write(streams[0], view) :]
        os.lseek(streams[0], 0, os.SEEK_SET)

        def become() -> None:
            program.run(source)

        limits = {"RLIMIT_CPU": int(self.settings["cpu_s"]) + 2}
        pid = self.fork(limits, [], become, streams)
        late, status = reaped(pid, self.watched())
        self.pid = 0
        code = os.waitstatus_to_exitcode(status)
        most = self.settings["output_bytes"]
        data = os.pread(streams[1], most + 1, 0)
        size = os.fstat(streams[2]).st_size
        error = os.pread(streams[2], MOST_SAID, max(0, size - MOST_SAID)).decode("utf-8", "replace").strip()
        for number in streams:
            os.close(number)
        if code == -SIGXFSZ or len(data) > most:
            how: dict[str, Any] = {"status": "output"}
        elif late or code == -SIGXCPU:
            how = {"status": "timeout"}
        elif error.endswith("MemoryError"):
            how = {"status": "memory"}
        elif code:
            said = error.splitlines()[-1:] if code > 0 else []
            how = {"status": "error", "code": code, **({"message": said[0]} if said else {})}
        else:
            return self.say({"ran": len(data)}, data)
        return self.say({"ended": how})

    def fork(self, limits: dict[str, int], kept: list[int], become: Callable[[], None], streams: Any = ()) -> int:
        """Starts a process that is confined and becomes a program."""
        pid = os.fork()
        if pid:
            self.pid = pid
            return pid
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        self.requests.close()
        self.host.close()
        for number in {self.to, self.of, *streams} - {*kept, -1}:
            os.close(number)
        limit({**self.settings["limits"], **limits})
        if self.settings["filter"]:
            forbid(bytes.fromhex(self.settings["filter"]))
        raise Become(become)

    def clean(self) -> None:
        """Empties the folder that programs write in, as far as the last program's files can be removed.

        What lies in a folder is moved up before that goes: so no path is long, however deep they nest.
        """
        os.chdir(self.settings["folder"])
        names = os.listdir()  # noqa: PTH208
        moved = 0
        while names:
            name = names.pop()
            try:
                if not opened(name):
                    os.unlink(name)  # noqa: PTH108
                    continue
                for inner in os.listdir(name):  # noqa: PTH208
                    opened(f"{name}/{inner}")
                    moved += 1
                    os.rename(f"{name}/{inner}", f"{MOVED}{moved}")  # noqa: PTH104
                    names.append(f"{MOVED}{moved}")
                os.rmdir(name)  # noqa: PTH106
            except OSError:
                continue


def opened(path: str) -> bool:
    """Returns True if this is a folder, which can be emptied now."""
    folder = stat.S_ISDIR(os.lstat(path).st_mode)
    if folder:
        os.chmod(path, 0o700)  # noqa: PTH101
    return folder


class TimeLeft:
    """The time that a process may still take from now: of CPU time, where the system tells it, and of the clock.

    The clock's limit is for who sleeps: what works although it is given little of a busy machine has longer.
    """

    def __init__(self, pid: int, cpu_s: float, wall_s: float) -> None:
        self.pid = pid
        self.cpu = cpu_of(pid)
        self.cpu_ends = self.cpu + cpu_s
        self.wall_ends = time.monotonic() + wall_s

    def left(self) -> float:
        """Returns the seconds until it is worth another look; 0 or less when the time is over."""
        cpu = cpu_of(self.pid)
        wall_ends = self.wall_ends + STARVED * (cpu - self.cpu)
        return min(self.cpu_ends - cpu, wall_ends - time.monotonic(), LONGEST_LOOK_S)


def cpu_of(pid: int) -> float:
    """Returns the seconds of CPU time of all threads of a process; 0 where the system has no such clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, AttributeError):
        return 0.0


def reaped(pid: int, watch: TimeLeft) -> tuple[bool, int]:
    """Waits for a process, and ends it when its time is over.

    Returns:
        whether it was late, and its status.
    """
    pause, late = PAUSE_S, False
    ends = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1  # without it the process is polled
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        left = watch.left()
        if not late and left <= 0:
            os.kill(pid, SIGKILL)
            late = True
        if ends >= 0:
            select.select([ends], [], [], LONGEST_LOOK_S if late else left)
        else:
            time.sleep(pause)
            pause = min(1.2 * pause, LONGEST_PAUSE_S)
    if ends >= 0:
        os.close(ends)
    return late, status


def temporary() -> int:
    """Returns the descriptor of a new file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stream")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def limit(limits: dict[str, int]) -> None:
    """Sets resource limits that cannot be raised again."""
    for name, most in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (lower, lower))


def forbid(code: bytes) -> None:
    """Puts a filter of system calls on this process for good.

    Raises:
        OSError: the kernel does not take it.
    """
    held = ctypes.create_string_buffer(code, len(code))
    made = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
    called(ctypes.CDLL(None, use_errno=True).prctl(22, 2, made, 0, 0), "prctl")  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def called(result: int, name: str) -> None:
    """Raises OSError if a function of the C library has failed."""
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def mounted(folder: str, size: int, inodes: int) -> bool:
    """Mounts a new file system of bounded size and number of files over a folder; returns True if that worked."""
    options = f"size={size},nr_inodes={inodes},mode=1777".encode()
    nosuid_nodev_noexec = 2 | 4 | 8
    return ctypes.CDLL(None).mount(b"tmpfs", folder.encode(), b"tmpfs", nosuid_nodev_noexec, options) == 0


def surrender(user: int | None) -> None:
    """Becomes another user, if one is given, and gives up every capability."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
    header, nothing = struct.pack("II", 0x20080522, 0), bytes(24)  # _LINUX_CAPABILITY_VERSION_3
    called(libc.capset(header, nothing), "capset")


def main() -> None:
    """Runs the keeper with the settings on the command line."""
    settings = loads(sys.argv[1])
    sys.argv[1:] = []
    sys.path[:0] = settings["libraries"]
    ready = {"ready": True}
    if settings["tmp"]:
        ready["inodes"] = mounted(settings["folder"], *settings["tmp"])
        surrender(settings["user"])
    else:
        os.mkdir(settings["folder"], 0o700)  # noqa: PTH102
    try:
        gc.collect()
        gc.freeze()
        Keeper(settings).serve(ready)
    except Become as new:
        begin = new.begin
    else:
        if not settings["tmp"]:  # the host has died without removing the folder
            os.chdir("/")
            os.rmdir(settings["folder"])  # noqa: PTH106
        return
    begin()
