"""The host's side of a sandbox: one interpreter, asked in bounded JSON lines; and a warm pool of them.

Every request's sandbox is new and used once: what is warm is an interpreter that has started and
waits. Nothing that comes out of it is trusted: lines are bounded in size and time, parsed as JSON,
and turned into a typed answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import threading
import time
from typing import Any

from coterie.errors import Unavailable
from coterie.sandbox.backends import Box, Started, start
from coterie.sandbox.inside import LONGEST_MESSAGE, NotPlain, decode

STATUSES = frozenset({"ok", "error", "timeout", "memory", "output", "refused"})
GRACE_S = 1.0
"""What a request may take beyond its own time before its sandbox is killed."""
START_S = 30.0
"""What an interpreter may take to start."""
CHUNK = 1 << 16
FIELDS: dict[str, type] = {
    "message": str, "output": str, "left": str, "held": list, "at": int, "args": list, "kwargs": dict,
}  # fmt: skip
"""What an answer may hold beside its status and value."""
Answer = dict[str, Any]
"""status, and value, output, message and the like where there are any."""


class Worker:
    """One sandbox. Once it has failed to answer it is dead, and every further answer says why."""

    def __init__(self, box: Box) -> None:
        """Starts it. Raises: Unavailable: it could not be started."""
        self.box = box
        self._started: Started = start(box)
        self._process = self._started.process
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._unread = b""
        self._dead: Answer | None = None
        self._ends = 0.0

    def begin(self) -> None:
        """Waits until it can serve; its total time runs from here. Raises: Unavailable: it never could."""
        answer = self._read(time.monotonic() + START_S, "ready")
        if answer["status"] != "ready":
            assert self._process.stderr is not None
            self._process.kill()
            reason = self._process.stderr.read(1 << 16).decode("utf-8", "replace").strip()[-LONGEST_MESSAGE:]
            raise Unavailable("sandbox", f"{self.box.backend} did not start: {reason or answer}")
        self._ends = time.monotonic() + self.box.total_s

    def ask(self, do: str, **request: Any) -> Answer:
        """One request's answer."""
        return self.send({"do": do, **request})

    def send(self, message: dict[str, Any]) -> Answer:
        """Sends a line and takes the next."""
        deadline = min(time.monotonic() + self.box.time_s + GRACE_S, self._ends)
        if self._dead is None:
            self._write(json.dumps(message).encode() + b"\n", deadline)
        return self._dead or self._read(deadline, "asked")

    def close(self) -> None:
        """Kills it as a tree, and leaves nothing behind."""
        if self._process.poll() is None or self.box.backend == "process":
            with contextlib.suppress(ProcessLookupError):
                if self.box.backend == "process":
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()  # its process namespace dies with it
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._started.cleanup()

    def _write(self, data: bytes, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._in, select.POLLOUT)
        while data:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return self._die("timeout")
            try:
                data = data[os.write(self._in, data[:CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return self._die("error", self._end())
        return None

    def _read(self, deadline: float, other: str) -> Answer:
        """The next line as an answer. other: a status that is allowed here beside the usual."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        longest = (self.box.output_kb << 10) * 6 + 4096  # JSON writes a character as six at most
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                self._die("timeout")
                break
            try:
                chunk = os.read(self._out, CHUNK)
            except BlockingIOError:
                continue
            self._unread += chunk
            if not chunk:
                self._die("error", self._end())
                break
            if len(self._unread) > longest:
                self._die("output")
                break
        if self._dead is not None:
            return self._dead
        line, _, self._unread = self._unread.partition(b"\n")
        return checked(line, other)

    def _die(self, status: str, message: str = "") -> None:
        self._dead = {"status": status, "message": message} if message else {"status": status}
        self._process.kill()

    def _end(self) -> str:
        """How it ended, when it ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=GRACE_S)
            number = -code if code < 0 else code - 128
            if number in signal.valid_signals():
                return f"it was ended by {signal.Signals(number).name}"
        return "it ended without an answer"


def checked(line: bytes, other: str) -> Answer:
    """A line from inside as an answer, with nothing in it that was not expected."""
    malformed: Answer = {"status": "refused", "message": "a malformed answer"}
    try:
        found = json.loads(line)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # a lone surrogate is not text
    except (ValueError, RecursionError):
        return malformed
    if not isinstance(found, dict) or found.get("status") not in (*STATUSES, other):  # of any type: no set
        return malformed
    answer: Answer = {"status": found["status"]}
    for key, kind in FIELDS.items():
        if key in found:
            if type(found[key]) is not kind:
                return malformed
            answer[key] = found[key][:LONGEST_MESSAGE] if key == "message" else found[key]
    if "value" in found:
        try:
            decode(found["value"])
        except (NotPlain, RecursionError):
            return malformed
        answer["value"] = found["value"]
    return answer


class Pool:
    """Sandboxes that have been started and wait, each for the one program it will ever see."""

    def __init__(self, box: Box, size: int | None = None) -> None:
        """Args: size: how many wait; None: one a core."""
        self.box = box
        self._ready: queue.Queue[Worker | Exception] = queue.Queue(size or os.cpu_count() or 1)
        self._closed = threading.Event()
        # A sandbox dies with the thread that started it, so that none outlives this process: a thread of its own.
        self._starter = threading.Thread(target=self._start, daemon=True, name="sandboxes")
        self._starter.start()

    @contextlib.contextmanager
    def worker(self):
        """A fresh sandbox, closed afterwards. Raises: Unavailable: none could be started."""
        found = self._ready.get()
        if isinstance(found, Exception):
            raise found
        try:
            found.begin()
            yield found
        finally:
            found.close()

    def close(self) -> None:
        """Ends those that wait."""
        self._closed.set()
        while self._starter.is_alive() or not self._ready.empty():
            with contextlib.suppress(queue.Empty):
                one = self._ready.get(timeout=0.05)
                if isinstance(one, Worker):
                    one.close()

    def _start(self) -> None:
        while not self._closed.is_set():
            try:
                one: Worker | Exception = Worker(self.box)
            except Exception as error:  # handed over to who waits for it
                one = error
            self._ready.put(one)
