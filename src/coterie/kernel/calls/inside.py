"""The processes that run calls: a template, and the workers that it forks. Standard library alone.

A template is a fresh interpreter that has one thread and no torch of the trainer's. It imports what it is asked to
import and forks a worker from there, so a worker costs a millisecond whatever its module loads. It reaps workers,
says how each ended, kills those it is told to kill, and takes all of them with it when the trainer has gone.

The trainer sends lines of JSON, a socket with every start:

    {"start": 7, "module": "my_tools", "file": "/…/my_tools.py"}     and the worker answers on its socket
    {"kill": 7}

and on a worker's socket `{"name": "search", "args": [...]}`, answered by `result`, `error` (kind, message, place),
`unavailable` (stage, message), `not_json`. The template adds `unloadable` (before the start) and `ended`.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
CHUNK = 1 << 16
OWN = "coterie_own_"
"""Beginning of the names of modules that are a user's files."""
LARGEST_RESULT = 1 << 24
"""Maximum characters of JSON that a call may give back: they are kept, replayed and written with the episode."""
LONGEST_ERROR = 10_000
"""Maximum characters of an exception's text."""
MOST_SOCKETS = 64
"""Maximum number of sockets that arrive in one read of the trainer's requests."""


def main() -> None:
    """Runs the template process: `inside.py SOCKET PATHS`."""
    sys.path[:] = json.loads(sys.argv[2])
    os.dup2(2, 1)  # what a tool prints is for people to see, and is not the trainer's output
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    Template(socket.socket(fileno=int(sys.argv[1]))).serve()


class Template:
    """The process that forks workers, and says how they have ended."""

    def __init__(self, trainer: socket.socket) -> None:
        self._trainer = trainer
        self._unread = b""
        self._sockets: list[int] = []
        self._workers: dict[int, tuple[int, socket.socket]] = {}
        self._died, writing = os.pipe()
        for end in (self._died, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Serves the trainer until it has gone; then no worker is left."""
        while True:
            ready, _, _ = select.select([self._trainer, self._died], [], [])
            if self._died in ready:
                with suppress(BlockingIOError):
                    os.read(self._died, CHUNK)
                self._bury()
            if self._trainer in ready and not self._hear():
                break
        for pid in self._workers:
            kill(pid)
        for pid in self._workers:
            os.waitpid(pid, 0)

    def _hear(self) -> bool:
        """Does what the trainer asks. Returns True if the trainer is still there."""
        try:
            data, sockets, _, _ = socket.recv_fds(self._trainer, CHUNK, MOST_SOCKETS)
        except ConnectionResetError:
            return False
        for ready in sockets:
            os.set_inheritable(ready, False)
        self._sockets += sockets
        *lines, self._unread = (self._unread + data).split(b"\n")
        for request in map(json.loads, lines):
            if "start" in request:  # sockets arrive in the order of their requests
                worker = socket.socket(fileno=self._sockets.pop(0))
                self._start(request["start"], request["module"], request["file"], worker)
            else:
                for pid, (number, _) in self._workers.items():
                    if number == request["kill"]:
                        kill(pid)
        return bool(data)

    def _start(self, number: int, module: str, file: str | None, worker: socket.socket) -> None:
        try:
            load(module, file)
        except BaseException as error:  # whatever a module does when it is imported
            say(worker, {"unloadable": f"{type(error).__name__}: {error}"})
            worker.close()
            return
        gc.freeze()  # its pages stay shared with the workers
        template = os.getpid()
        pid = os.fork()
        if not pid:
            self._become(worker, template, module)
        with suppress(
            PermissionError, ProcessLookupError
        ):  # the worker does the same, whichever of the two comes first
            os.setpgid(pid, pid)
        self._workers[pid] = (number, worker)

    def _become(self, worker: socket.socket, template: int, module: str) -> None:
        """Runs as a worker, which ends with its socket, or with the template."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)  # what a tool starts dies with it, unless it begins a session of its own
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != template:
                os._exit(1)
            self._trainer.close()
            for _, other in self._workers.values():
                other.close()
            work(worker, module)
        except ConnectionError:  # the waiting side has left
            os._exit(0)
        except BaseException:  # a worker must never return into the template's loop
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _bury(self) -> None:
        """Removes workers that have ended, and says how on their sockets."""
        for pid, (_, worker) in list(self._workers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                kill(pid)  # what it started: a group's number is not given again while somebody is in it
                del self._workers[pid]
                worker.setblocking(False)
                with suppress(OSError):  # the other side has closed the socket
                    say(worker, {"ended": ending(os.waitstatus_to_exitcode(status))})
                worker.close()


def kill(pid: int) -> None:
    """Ends a worker and the processes that it started."""
    with suppress(ProcessLookupError, PermissionError):  # it has ended, and had started nothing
        os.killpg(pid, signal.SIGKILL)


def ending(code: int) -> str:
    """Returns a text that says how a process ended."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"its process was ended by {name}"


def own_name(file: str, content: bytes) -> str:
    """Returns the module name of a user's file; a file that is edited gets another one."""
    return OWN + hashlib.blake2b(file.encode() + b"\0" + content, digest_size=8).hexdigest()


def load(module: str, file: str | None) -> None:
    """Imports a module by its name, or from its file under that name.

    Raises:
        ImportError: a user's file is no longer what it was when it got its name.
    """
    if module in sys.modules:
        return
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if file is None or error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        if module.startswith(OWN) and module != own_name(file, Path(file).read_bytes()):
            raise ImportError(f"{file} has been edited since; put it back as it was, or begin anew") from error
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[module] = made
        try:
            spec.loader.exec_module(made)
        except BaseException:
            del sys.modules[module]
            raise


def work(worker: socket.socket, module: str) -> None:
    """Answers calls of a module's functions, one after the other."""
    say(worker, {"ready": os.getpid()})
    with worker.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            message = {"call": request["call"], **answer(module, request["name"], request["args"])}
            worker.sendall(json.dumps(message).encode() + b"\n")


def answer(module: str, name: str, args: list[Any]) -> dict[str, Any]:
    """Runs a function and returns its result, or its error, as plain data."""
    try:
        function: Callable[..., Any] = reduce(getattr, name.split("."), sys.modules[module])
        result = function(*args)
    except BaseException as error:  # whatever a tool raises is data, its wish to exit too
        errors: Any = sys.modules.get("coterie.errors")
        if errors and isinstance(error, errors.Unavailable):
            return {"unavailable": [error.stage, str(error)]}  # pyright: ignore[reportAttributeAccessIssue]
        return {"error": [type(error).__name__, str(error)[:LONGEST_ERROR], raised_at(error, module)]}
    try:
        written = json.dumps(result)
        if len(written) > LARGEST_RESULT:
            return {
                "error": ["unusable", f"{len(written):,} characters of JSON, and a log takes {LARGEST_RESULT:,}", ""]
            }
        return {"result": json.loads(written)}
    except TypeError as error:  # not JSON data: a mistake in the tool
        return {"not_json": str(error)}
    except (
        ValueError,
        RecursionError,
    ) as error:  # JSON data beyond the bounds, which may depend on the tool's arguments
        return {"error": ["unusable", str(error), ""]}


def raised_at(error: BaseException, module: str) -> str:
    """Returns the line of a module in which an exception was raised, as `file.py:12`, or ""."""
    home = getattr(sys.modules[module], "__file__", None)
    frames = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == home]
    return f"{home}:{frames[-1]}" if frames else ""


def say(worker: socket.socket, message: dict[str, Any]) -> None:
    """Sends a message as one line; an end begins a new one, for a worker may have died within its own."""
    worker.sendall(b"\n" * ("ended" in message) + json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
