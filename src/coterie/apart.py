"""Runs libraries on untrusted data, in a process of its own with limits of memory and time.

A parser or a template cannot be interrupted in this process, and what it allocates is not counted. So the work is done
by another one, with a limit of memory, and of processor time for every answer: a machine that is busy refuses nothing
that an idle one takes. It is told and answers in JSON, and knows no secrets of this process.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from typing import Any

from coterie.errors import first_line

MEMORY = 200 << 20
"""Bytes of memory that the work may take in addition to its imports."""
SECONDS = 1
"""Seconds of processor time that the next answer may take; up to one more passes until the system notices."""
LATE = 120
"""Seconds without an answer after which a process is given up, even if it does not compute."""
KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
"""Environment variables that are passed on to the process."""
QUIET = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
"""Further environment variables of the process: threads would each set memory aside."""


class Refused(ValueError):
    """An error: the work took too much memory or time, or raised an exception.

    Attributes:
        kind: the class of what the work raised; "" where it was ended.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class Apart:
    """A process that does one kind of work, started when it is first asked, and again after it was ended.

    Args:
        work: module:function. It is called with what JSON can say, and yields such answers; what else it yields becomes
            text.
        memory: bytes, beside what the imports of its module take.
    """

    def __init__(self, work: str, *, memory: int = MEMORY) -> None:
        self._work, self._memory = work, memory
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, *asked: Any, seconds: int = SECONDS) -> Iterator[Any]:
        """Yields the answers to a request. Other threads wait until all are read.

        Args:
            seconds: of a processor, for each answer.

        Raises:
            Refused: it takes too much, or the work raised something.
        """
        with self._lock:
            try:
                link = self._linked()
                link.send_bytes(json.dumps([seconds, *asked]).encode())
                while "found" in (answer := self._answer(link, seconds)):
                    yield answer["found"]
            except BaseException:  # the reader has gone too, and what it did not read would be the next one's answer
                self._end()
                raise
        if "failed" in answer:
            raise Refused(answer["failed"], answer["kind"])

    def one(self, *asked: Any, seconds: int = SECONDS) -> Any:
        """Returns the answer to a request that has only one. Arguments and errors as in `ask`."""
        (found,) = self.ask(*asked, seconds=seconds)
        return found

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _linked(self) -> Connection:
        if self._owner != os.getpid():  # in a fork, which would take the other's answers
            self._process = None
        if self._process is None:
            self._link, theirs = Pipe()
            with theirs:
                command = [sys.executable, "-P", "-m", __name__, self._work, str(self._memory), str(theirs.fileno())]
                env = {name: os.environ[name] for name in KEPT if name in os.environ} | QUIET
                none = subprocess.DEVNULL
                self._process = subprocess.Popen(  # a session of its own: Ctrl-C is not for it
                    command, env=env, stdin=none, stdout=none, stderr=none, pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )  # fmt: skip
            self._owner = os.getpid()
            self._answer(self._link, SECONDS)  # its imports do not count
        return self._link

    def _answer(self, link: Connection, seconds: int) -> dict[str, Any]:
        assert self._process is not None
        with suppress(EOFError, OSError):
            if not link.poll(LATE):
                raise Refused(f"nothing came for {LATE} s")
            return json.loads(link.recv_bytes())
        if self._process.wait() == -signal.SIGXCPU:
            raise Refused(f"it takes more than {seconds} s")
        raise Refused(f"it takes more than {self._memory >> 20} MB, or breaks what reads it")

    def _end(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._link.close()
            self._process.kill()
            self._process.wait()
        self._process = None


def main(work: str, memory: int, link: Connection) -> None:
    """Runs in the process: answers requests until the asking side has gone."""
    module, _, name = work.partition(":")
    do = getattr(import_module(module), name)
    with limited(memory), suppress(EOFError, OSError):
        link.send_bytes(b"{}")
        while True:
            for answer in _answers(do, memory, *json.loads(link.recv_bytes())):
                link.send_bytes(json.dumps(answer, default=str).encode())


@contextmanager
def limited(memory: int) -> Iterator[None]:
    """Limits the bytes that this process may take from now on, while it lasts; it never widens a limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):  # where a system does not know how, time alone is limited
        resource.setrlimit(resource.RLIMIT_AS, (min(_size() + memory, soft) if soft >= 0 else _size() + memory, hard))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _answers(
    do: Callable[..., Iterator[Any]], memory: int, seconds: int, *asked: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    try:
        _allow(seconds)
        for found in do(*asked):
            yield {"found": found}
            _allow(seconds)
    except Exception as error:  # whatever the library raises
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            yield {"failed": f"it takes more than {memory >> 20} MB", "kind": ""}
        else:
            yield {"failed": first_line(error), "kind": type(error).__name__}
    else:
        yield {}


def _allow(seconds: int) -> None:
    """Limits the processor time of the process to so many seconds from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + seconds, hard))


def _size() -> int:
    """Returns the size of the process's address space, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Connection(int(sys.argv[3])))
