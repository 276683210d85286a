"""The memory of this machine, or of the container that the process is in: how much there is, and how much is free."""

from __future__ import annotations

import ctypes
import errno
import gc
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil

LACKING = re.compile(r"can(?:'|no)t allocate memory|out of memory|bad_alloc|not enough memory", re.IGNORECASE)
"""Pattern of the messages by which libraries say, in exceptions of their own, that memory was refused."""
OLD = "/sys/fs/cgroup/memory/memory"
LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    (f"{OLD}.limit_in_bytes", f"{OLD}.usage_in_bytes", "total_inactive_file"),
)
"""Files in which Linux keeps a container's limit and its usage, and the key of `memory.stat` that says how much of the
usage is file cache, which is given up on demand: for cgroup v2, for v1."""


def total() -> int:
    """Returns the bytes of memory that this process may take."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _limits())])


def free() -> int:
    """Returns the bytes of memory that this process may still take."""
    return max(0, min([psutil.virtual_memory().available, *(limit - taken for limit, taken in _limits())]))


def lacking(error: BaseException | None) -> bool:
    """Returns True if an error, or one that it comes of, says that memory was refused, on the machine or a GPU."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, RuntimeError) and LACKING.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


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
    """Has glibc map blocks of at least 1 MiB one by one, so that each returns to the machine when it is freed.

    By default glibc keeps freed blocks of up to 32 MiB, and cannot use them again while others lie between them: of a
    real model's activations, hundreds of MiB.
    """
    if sys.platform == "linux" and (tell := _of_glibc("mallopt")):
        tell(MMAP_THRESHOLD, 1 << 20)


MMAP_THRESHOLD = -3
"""Number of the option M_MMAP_THRESHOLD in malloc.h."""


@cache
def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)  # musl has none of these


def _limits() -> list[tuple[int, int]]:
    """Returns the limits of this process's container, each with what is used of it, file cache left out."""
    found: list[tuple[int, int]] = []
    for limit, taken, key in LIMITS:
        try:
            found.append((int(Path(limit).read_text()), int(Path(taken).read_text()) - _cached(Path(taken), key)))
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
    return found


def _cached(taken: Path, key: str) -> int:
    """Returns the bytes of file cache in a container's usage; 0 where the kernel does not say."""
    try:
        lines = taken.with_name("memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)[key])
    except (OSError, ValueError, KeyError):
        return 0
