"""The host's side of a sandbox: one keeper, asked in bounded lines; and a warm pool of them.

Every program's sandbox is new and used once: what is warm is a keeper that has started and waits. What a program
does, and however it ends, is its answer; `Unavailable` is raised only by a sandbox that never was ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from coterie.errors import Unavailable
from coterie_worlds.sandbox.backends import Box, Started, start
from coterie_worlds.sandbox.border import LONGEST_MESSAGE, MALFORMED, Message, ended, parsed, read

GRACE_S = 2.0
"""Seconds that a keeper may take beyond the time of its program before its sandbox is killed."""
START_S = 30.0
"""Seconds that a keeper may take to start."""
CHUNK = 1 << 18
MOST_SAID, MOST_WRITTEN = 2, 8
"""Amounts that a program may answer, and write, in all its tests, in multiples of what it may in one."""
GONE: Message = {"status": "error", "message": "its sandbox ended"}


class SandboxWorker:
    """One sandbox, as the host uses it. Once its keeper has failed to answer it is dead, and every answer says why."""

    def __init__(self, box: Box) -> None:
        """Starts the sandbox.

        Raises:
            Unavailable: it could not be started.
        """
        self.box = box
        self._started: Started = start(box)
        self._process = self._started.process
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._unread = bytearray()
        self._dead: Message | None = None
        self._ends = 0.0
        self._program: dict[str, Any] = {}
        self._lives = False
        self._said = 0

    def begin(self) -> None:
        """Waits until the sandbox can serve; its total time runs from here.

        Raises:
            Unavailable: it never could.
        """
        ready = self._line(time.monotonic() + START_S)
        if ready is None or parsed(ready) is None:
            assert self._process.stderr is not None
            self._kill()
            reason = self._process.stderr.read(1 << 16).decode("utf-8", "replace").strip()[-LONGEST_MESSAGE:]
            raise Unavailable("sandbox", f"{self.box.backend} did not start: {reason or self._dead}")
        self._ends = time.monotonic() + self.box.total_wall_s

    def load(
        self, source: str, *, crossing: bool = False, objects: bool = False, partner: str = "", eye: str = ""
    ) -> Message:
        """Loads a program into the sandbox.

        Returns:
            loaded, or a failure; or what it asks for, if it has a partner.

        Args:
            crossing: functions and iterators may cross, and what a call changed is told.
            objects: so may objects, see `remote.py`.
            partner: the name of a function that lives elsewhere.
            eye: see `look`.
        """
        self._program = {
            "do": "begin", "what": "load", "source": source, "crossing": crossing, "objects": objects,
            "partner": partner, "eye": eye,
        }  # fmt: skip
        self._said = 0
        return self._spoken(self._program, ("loaded", "asked") if partner else ("loaded",))

    def check(self, source: str, name: str) -> Message:
        """Begins test code in the sandbox.

        Returns:
            its first message.
        """
        self._program = {"do": "begin", "what": "check", "source": source, "name": name}
        return self._spoken(self._program, ("asked", "held", "done"))

    def call(self, accepted: Collection[str] = ("returned",), **call: Any) -> Message:
        """Calls a function of the program, which is loaded again if the call before ended it."""
        if not self._lives and (loaded := self._spoken(self._program, ("loaded",)))["status"] != "loaded":
            return loaded
        return self.tell({"call": call}, accepted)

    def look(self, forced: Mapping[int, Any]) -> list[list[Any]]:
        """Returns the values of a watched program's expressions since the last look: site, varied, count, first, last.

        Args:
            forced: what sites shall be from here on. A program that has ended has seen nothing.
        """
        if not self._lives and self._spoken(self._program, ("loaded",))["status"] != "loaded":
            return []
        return self.tell({"look": forced}, ("seen",)).get("sites", [])

    def tell(self, message: dict[str, Any], accepted: Collection[str], *, fresh: bool = True) -> Message:
        """Hands the program a message and returns its next one.

        Args:
            fresh: its time begins anew; else what it has asked in between is part of the same call.
        """
        return self._spoken({"do": "tell", "line": json.dumps(message), "fresh": fresh}, accepted)

    def run(self, source: str, stdin: str) -> Message:
        """Runs a whole program on a standard input.

        Returns:
            ran, with its output; or a failure.
        """
        answer = self._asked({"do": "run", "source": source, "stdin": stdin})
        count = answer.get("ran")
        if self._dead is None and type(count) is int and 0 <= count <= self.box.output_kb << 10:
            data = self._taken(count, time.monotonic() + GRACE_S)
            if not self._within(count, MOST_WRITTEN):
                return {"status": "output"}
            return {"status": "ran", "output": data.decode("utf-8", "replace")} if data is not None else self._failed()
        return self._ended(answer)

    @property
    def dead(self) -> bool:
        """True if the keeper answers no more: nothing that the sandbox says then tells of a program."""
        return self._dead is not None

    @property
    def lives(self) -> bool:
        """True if the program that was begun has not ended."""
        return self._lives

    def close(self) -> None:
        """Kills the sandbox with all its processes, and leaves nothing behind."""
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._started.cleanup()

    def _spoken(self, request: dict[str, Any], accepted: Collection[str]) -> Message:
        """Returns the program's message after a request; or how it ended."""
        answer = self._asked(request)
        said = answer.get("said")
        self._lives = self._dead is None and type(said) is str
        if not (self._lives and isinstance(said, str)):
            return self._ended(answer)
        return read(said, accepted) if self._within(len(said), MOST_SAID) else {"status": "output"}

    def _within(self, more: int, most: int) -> bool:
        """Counts more bytes; returns True if all that the program said and wrote fits into `most` answers' limits."""
        self._said += more
        return self._said <= most * (self.box.output_kb << 10)

    def _ended(self, answer: dict[str, Any]) -> Message:
        """Returns how the program ended, as its keeper says; or why the keeper is dead."""
        return self._dead or ended(answer.get("ended"))

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the keeper's answer to a request; an empty dict if it is dead."""
        deadline = min(time.monotonic() + self.box.longest_s + GRACE_S, self._ends)
        if self._dead is None:
            self._write(json.dumps(request).encode() + b"\n", deadline)
        line = self._line(deadline)
        message = parsed(line) if line is not None else None
        if isinstance(message, dict):
            return message
        if line is not None:
            self._die(MALFORMED)
        return {}

    def _failed(self) -> Message:
        return self._dead or GONE

    def _write(self, data: bytes, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._in, select.POLLOUT)
        view = memoryview(data)
        while view:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return self._die({"status": "timeout"})
            try:
                view = view[os.write(self._in, view[:CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return self._die(GONE)
        return None

    def _line(self, deadline: float) -> bytes | None:
        """Returns the keeper's next line; None when it is dead."""
        longest = (self.box.output_kb << 10) * 6 + (1 << 16)  # JSON writes a character as at most six
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0:
            seen = len(self._unread)
            if self._dead is not None or not self._more(deadline):
                return None
            if len(self._unread) > longest:
                self._die({"status": "output"})
                return None
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _taken(self, count: int, deadline: float) -> bytes | None:
        """Returns so many of the keeper's bytes; None when it is dead before."""
        while len(self._unread) < count:
            if not self._more(deadline):
                return None
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    def _more(self, deadline: float) -> bool:
        """Takes the bytes that have come; returns True if there were any in time."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            self._die({"status": "timeout"})
            return False
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._out, CHUNK)
            self._unread += chunk
            if not chunk:
                self._die({"status": "memory"} if self._started.starved() else GONE)
            return bool(chunk)
        return True

    def _die(self, why: Message) -> None:
        self._dead = why
        self._lives = False
        self._kill()

    def _kill(self) -> None:
        """Kills the process group: without namespaces all of it, with bwrap also its child, which dies with it."""
        if self._process.poll() is None or self.box.backend == "process":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


class SandboxPool:
    """Sandboxes that have been started and wait, each for the one program it will ever run."""

    def __init__(self, box: Box, size: int | None = None) -> None:
        """Keeps `size` sandboxes waiting; without a size, one per core."""
        self.box = box
        self._ready: queue.Queue[SandboxWorker | Exception] = queue.Queue(size or os.cpu_count() or 1)
        self._closed = threading.Event()
        # A sandbox dies with the thread that started it, so that none outlives this process: a thread of its own.
        self._starter = threading.Thread(target=self._start, daemon=True, name="sandboxes")
        self._starter.start()

    @contextlib.contextmanager
    def worker(self) -> Iterator[SandboxWorker]:
        """Yields a fresh sandbox, which is closed afterwards.

        Raises:
            Unavailable: none could be started.
        """
        ready = self._ready.get()
        if isinstance(ready, Exception):
            raise ready
        try:
            ready.begin()
            yield ready
        finally:
            ready.close()

    def close(self) -> None:
        """Ends the sandboxes that wait."""
        self._closed.set()
        while self._starter.is_alive() or not self._ready.empty():
            with contextlib.suppress(queue.Empty):
                worker = self._ready.get(timeout=0.05)
                if isinstance(worker, SandboxWorker):
                    worker.close()

    def _start(self) -> None:
        while not self._closed.is_set():
            try:
                worker: SandboxWorker | Exception = SandboxWorker(self.box)
            except Exception as error:  # raised in the thread that waits for the worker
                worker = error
            self._ready.put(worker)
