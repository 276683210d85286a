"""Functions that tests give to `scene.call`; apart from what imports torch, so that a worker starts at once."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

from coterie.errors import Unavailable

CALLS: list[int] = []
"""What has been called in this process."""


def double(number: int) -> int:
    CALLS.append(number)
    return 2 * number


def fail(number: int) -> int:
    CALLS.append(number)
    raise ZeroDivisionError("by design")


def touch() -> int:
    return 1


def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def unavailable_for_odd(number: int) -> int:
    if number % 2:
        raise Unavailable("sandbox", "no room")
    return number


def echo(value: object) -> object:
    return value


def repeated(times: int) -> str:
    return "x" * times


def complain(times: int) -> None:
    raise ValueError("x" * times)


def process() -> int:
    return os.getpid()


def how_often() -> int:
    CALLS.append(0)
    return len(CALLS)


def segfault() -> None:
    ctypes.string_at(0)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(7)


def ask_to_leave() -> None:
    sys.exit("enough")


def no_memory() -> None:
    raise MemoryError("all of it")


def spin() -> None:
    while True:
        pass


def spin_for_odd(number: int) -> int:
    while number % 2:
        pass
    return number


def die_for_odd(number: int) -> int:
    if number % 2:
        os._exit(7)
    return number


def letters(count: int) -> str:
    return "x" * count


def shout(text: str) -> str:
    print(text)  # noqa: T201
    os.write(1, text.encode())
    subprocess.run(["echo", text], check=True)
    return text


def start_another() -> int:
    """A process of its own, which holds everything that the worker has open."""
    return subprocess.Popen(["sleep", "60"], close_fds=False).pid


def a_set() -> set[int]:
    return {1}
