"""The memory of this machine, or of the container that the process is in: how much there is, and how much is free."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil

OLD = "/sys/fs/cgroup/memory/memory"
LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    (f"{OLD}.limit_in_bytes", f"{OLD}.usage_in_bytes", "total_inactive_file"),
)
"""Where Linux says what a container may take and what it has taken, and what it calls, in memory.stat, that part which
are copies of files and is given up when it is needed: of the second version, of the first."""


def total() -> int:
    """Bytes that this process may take."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _limits())])


def free() -> int:
    """Bytes that it may still take."""
    return max(0, min([psutil.virtual_memory().available, *(limit - taken for limit, taken in _limits())]))


def give_back(*, collect: bool = False) -> None:
    """Returns freed memory to the machine, which glibc's allocator otherwise keeps: gigabytes after an update.

    Args:
        collect: first free what only reference cycles hold, as models do that were let go.
    """
    if collect:
        gc.collect()
    if sys.platform == "linux" and (trim := _of_glibc("malloc_trim")):
        trim(0)


def map_blocks() -> None:
    """From now on, blocks of a MiB go back to the machine when they are freed, which costs no time that was measured.

    Otherwise glibc keeps blocks of up to 32 MiB, once it has freed one, and cannot give them again while others lie
    between them: of a real model's activations, hundreds of MiB.
    """
    if sys.platform == "linux" and (tell := _of_glibc("mallopt")):
        tell(MMAP_THRESHOLD, 1 << 20)


MMAP_THRESHOLD = -3
"""Its number in malloc.h."""


@cache
def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)  # musl has none of these


def _limits() -> list[tuple[int, int]]:
    """Limits of this process's container with what it has taken for good, where there are any."""
    found: list[tuple[int, int]] = []
    for limit, taken, files in LIMITS:
        try:
            stat = dict(line.split() for line in Path(taken).with_name("memory.stat").read_text().splitlines())
            found.append((int(Path(limit).read_text()), int(Path(taken).read_text()) - int(stat[files])))
        except (OSError, ValueError, KeyError):  # there is no such file, or it says "max"
            continue
    return found
