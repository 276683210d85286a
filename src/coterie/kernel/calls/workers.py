"""Workers: processes that run calls, each forked by a template process, used again, and ended with the trainer.

A worker imports the function's module and executes one call after the other. A call that crashes, exits, hangs or
spins ends only its worker. A template process (`inside.py`) forks the workers, not the trainer, because the trainer
has threads. Workers start on demand.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from coterie.errors import CallError, EnvError, Unavailable
from coterie.kernel.calls import inside
from coterie.kernel.calls.places import Place

AT_ONCE = 4 * (os.cpu_count() or 1)
"""Maximum number of calls that run at once."""
START_S = 120.0
"""Seconds that a worker may take to start, the import of its module included."""
CHUNK = 1 << 18


class TimedOut(CallError):
    """A call took longer than its limit."""


class Crashed(CallError):
    """A call ended its process."""


class CallWorker:
    """The trainer's end of a worker: its socket, and the call that it was asked last."""

    def __init__(self, number: int, module: str, end: socket.socket) -> None:
        self.number = number
        self.module = module
        self.socket = end
        self._unread = bytearray()
        self.pid = 0
        self.asked = 0
        """The number of the latest call; an answer to another is a forgery, or a child's that never ended."""

    async def ask(self, request: bytes, limit_s: float) -> dict[str, Any] | None:
        """Sends a request and returns the answer; None if there is none in time.

        Raises:
            Unavailable: the worker was lost without a word.
        """
        exchange = asyncio.ensure_future(self._exchange(request))
        try:
            await asyncio.wait({exchange}, timeout=limit_s)
        finally:
            if not exchange.done():
                exchange.cancel()
                await asyncio.wait({exchange})
        if not exchange.cancelled():
            return exchange.result()
        with contextlib.suppress(OSError):  # an answer that came while this process was busy counts as in time
            while chunk := self.socket.recv(CHUNK):
                self._unread += chunk
        return self._answer()

    @property
    def silent(self) -> bool:
        """True if nothing has come that nobody asked for; otherwise the worker has most likely ended."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # the worker has ended, and its exit status is still to be read
            await loop.sock_sendall(self.socket, request)
        while (answer := self._answer()) is None:
            try:
                chunk = await loop.sock_recv(self.socket, CHUNK)
            except ConnectionError:
                chunk = b""
            if not chunk:
                raise Unavailable("calls", f"a worker of {self.module} was lost")
            self._unread += chunk
        return answer

    def _answer(self) -> dict[str, Any] | None:
        """Returns the latest line if it is whole: one that a worker's end cut short is followed by word of that end."""
        if not self._unread.endswith(b"}\n"):
            return None
        line, self._unread = self._unread.splitlines()[-1], bytearray()
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            return {"ended": "it wrote to the wire of its worker"}
        ours = isinstance(answer, dict) and ("ended" in answer or answer.get("call", self.asked) == self.asked)
        return answer if ours else {"ended": "it answered a call that was not asked"}


class TemplateProcess:
    """The trainer's end of the process that forks workers. env: its variables; None: those of this process."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._end, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", inside.__file__, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=env,
                start_new_session=True,  # Ctrl-C is the trainer's alone
            )
        except OSError as error:
            self._end.close()
            raise Unavailable("calls", f"no process for calls: {error}") from error
        finally:
            theirs.close()

    def start(self, number: int, place: Place) -> socket.socket:
        """Asks the template process for a worker.

        Returns:
            its socket.

        Raises:
            OSError: the template has gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            request = {"start": number, "module": place.module, "file": place.file}
            try:
                socket.send_fds(self._end, [json.dumps(request).encode() + b"\n"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def kill(self, number: int) -> None:
        """Ends a worker, whatever it does."""
        with contextlib.suppress(OSError):  # the template is gone, and its workers with it
            self._end.sendall(json.dumps({"kill": number}).encode() + b"\n")

    def close(self) -> None:
        """Ends the template process and its workers."""
        self._end.close()
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it imports something: its workers die with it
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Lets go of the template process in a fork of this process: it is the parent's."""
        self._end.close()
        self._process.returncode = 0


class WorkerPool:
    """The pool of this process's workers: started when needed, used again, one call at a time each."""

    def __init__(self, most: int = AT_ONCE, env: Mapping[str, str] | None = None) -> None:
        """Keeps `most` workers. env: the variables of their processes; None: ours."""
        self._most = most
        self._env = env
        self._idle: list[CallWorker] = []
        self._template: TemplateProcess | None = None
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    async def run(
        self, place: Place, args: tuple[Any, ...], limit_s: float, started: Callable[[int], None] = lambda _: None
    ) -> Any:
        """Runs a call and returns its result, as `run` does. started: is told the number of the worker's process."""
        worker = self._take(place.module) or await self._started(place)
        started(worker.pid)
        answer: dict[str, Any] | None = None
        try:
            worker.asked += 1
            request = json.dumps({"call": worker.asked, "name": place.name, "args": args}).encode() + b"\n"
            answer = await worker.ask(request, limit_s)
        finally:
            if answer is None or "call" not in answer:
                self._end(worker)
            else:
                self._keep(worker)
        return _result(place.name, answer, limit_s)

    def close(self) -> None:
        """Ends every worker, now."""
        with self._lock:
            template, self._template = self._template, None
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.socket.close()
        if template:
            template.close()

    def forget(self) -> None:
        """Lets go of the workers in a fork of this process: they are the parent's."""
        self._lock = threading.Lock()
        if self._template:
            self._template.forget()
        self._template = None
        for worker in self._idle:
            worker.socket.close()
        self._idle = []

    def _take(self, module: str) -> CallWorker | None:
        """Returns an idle worker that has imported a module and still lives; None if there is none."""
        with self._lock:
            for worker in reversed(self._idle):
                if worker.module == module:
                    self._idle.remove(worker)
                    if worker.silent:
                        return worker
                    self._end(worker)
        return None

    async def _started(self, place: Place) -> CallWorker:
        """Starts a worker. Raises: Unavailable: it did not start. EnvError: its module cannot be imported there."""
        worker = self._start(place)
        answer: dict[str, Any] | None = None
        try:
            answer = await worker.ask(b"", START_S)
            if answer is None:
                raise Unavailable("calls", f"a worker of {place.module} took more than {START_S:g} s to start")
            if "ended" in answer:
                raise Unavailable("calls", f"a worker of {place.module} did not start: {answer['ended']}")
            if "unloadable" in answer:
                raise EnvError(
                    f"scene.call runs {place.module}:{place.name} in another process, which cannot import it "
                    f"({answer['unloadable']}); write it into a file that can be imported by itself"
                )
            worker.pid = answer.get("ready", 0)
        finally:
            if answer is None:
                self.close()  # the template itself hangs in an import, or has ended
            if answer is None or "ready" not in answer:
                worker.socket.close()
        return worker

    def _start(self, place: Place) -> CallWorker:
        with self._lock:
            number = next(self._numbers)
            if self._template:
                with contextlib.suppress(OSError):
                    return CallWorker(number, place.module, self._template.start(number, place))
                self._template.close()  # somebody has killed the worker
            self._template = TemplateProcess(self._env)
            try:
                return CallWorker(number, place.module, self._template.start(number, place))
            except OSError as error:
                raise Unavailable("calls", f"no process for calls: {error}") from error

    def _keep(self, worker: CallWorker) -> None:
        with self._lock:
            self._idle.append(worker)
            spare = self._idle.pop(0) if len(self._idle) > self._most else None
        if spare:
            spare.socket.close()  # it ends by itself

    def _end(self, worker: CallWorker) -> None:
        worker.socket.close()
        if self._template:
            self._template.kill(worker.number)


@cache
def pool() -> WorkerPool:
    """Returns the pool of this process's workers."""
    made = WorkerPool()
    atexit.register(made.close)
    os.register_at_fork(after_in_child=made.forget)
    return made


def _result(name: str, answer: dict[str, Any] | None, limit_s: float) -> Any:
    match answer:
        case None:
            raise TimedOut("timeout", f"no result after {limit_s} s")
        case {"ended": ending}:
            raise Crashed("crash", ending)
        case {"unavailable": [stage, message]}:
            raise Unavailable(stage, message)
        case {"error": [kind, message, place]}:
            raise CallError(kind, message, place)
        case {"not_json": why}:
            raise EnvError(f"the result of scene.call({name}, …) must be JSON, as lists and numbers are: {why}")
        case {"result": result}:
            return result
        case _:
            raise Crashed("crash", "it wrote to the wire of its worker")
