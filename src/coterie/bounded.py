"""Files that may be anybody's, read within bounds: what unpacks to gigabytes, or is no file, is refused at once."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

RATIO, SMALL = 100, 64 << 20
"""Bytes that a packed one may become, and below which it may be packed more tightly: equal replies repeat."""
CHUNK = 1 << 20


class TooMuch(ValueError):
    """A file holds more than it may."""


def opened(file: Path) -> IO[bytes]:
    """Opens an ordinary file; a pipe or a device would be waited for, or never end.

    Raises:
        OSError: it cannot be opened, or is none.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(None, "it is no ordinary file", str(file))
    return os.fdopen(handle, "rb")


def content(file: Path, most: int) -> bytes:
    """Returns a file's bytes.

    Raises:
        TooMuch: they are more than `most`.
        OSError: it cannot be read.
    """
    with opened(file) as reading:
        there = reading.read(most + 1)
    if len(there) > most:
        raise TooMuch(f"it has more than {most:,} bytes")
    return there


def unpacked(file: Path, most: int) -> Iterator[bytes]:
    """Yields the lines of a gzip file. They are counted before the first is kept.

    Args:
        most: bytes that it may unpack to.

    Raises:
        TooMuch: they are more, or `RATIO` times as many as are packed.
        OSError, EOFError, zlib.error: it cannot be read, or is damaged.
    """
    with opened(file) as packed:
        allowed = min(most, max(SMALL, RATIO * os.fstat(packed.fileno()).st_size))
        with gzip.open(packed) as counting:
            there = 0
            while part := counting.read(CHUNK):
                there += len(part)
                if there > allowed:
                    raise TooMuch(f"it unpacks to more than {allowed:,} bytes")
        packed.seek(0)
        with gzip.open(packed) as reading:
            yield from reading
