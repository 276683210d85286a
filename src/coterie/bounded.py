"""Reads untrusted files within bounds: one that unpacks to gigabytes, or is no ordinary file, is refused at once."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from coterie.apart import MEMORY, Apart, Refused

RATIO, SMALL = 100, 64 << 20
"""Maximum unpacked bytes per packed byte, and the unpacked size up to which a file may exceed that: replies repeat."""
CHUNK = 1 << 20
ROWS, ROW = 64, 100
"""Rows of a parquet file that are read at once, and the bytes that each row counts at least."""
PARSED = 10 << 20
"""Bytes of a parquet file for each of which one more second is allowed to read its rows."""


class TooMuch(ValueError):
    """A file holds more than it may."""


def opened(file: Path) -> BufferedReader:
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
        size = os.fstat(packed.fileno()).st_size
        if not size:  # of nothing, gzip makes something
            raise EOFError("it is empty")
        allowed = min(most, max(SMALL, RATIO * size))
        with gzip.open(packed) as counting:
            there = 0
            while part := counting.read(CHUNK):
                there += len(part)
                if there > allowed:
                    raise TooMuch(f"it unpacks to more than {allowed:,} bytes")
        packed.seek(0)
        with gzip.open(packed) as reading:
            yield from reading


def parquet(file: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a parquet file as JSON data, other values as text; a process of its own reads them.

    Raises:
        TooMuch: they are more than `RATIO` times as many bytes as the file, or reading them takes too much.
        ImportError: there is no pyarrow.
        ValueError: it is damaged, or no parquet.
        OSError: it cannot be read.
    """
    with opened(file) as there:
        size = os.fstat(there.fileno()).st_size
    reader = Apart(f"{__name__}:parquet_rows", memory=MEMORY + 4 * size)
    try:
        for rows in reader.ask(str(file.absolute()), max(SMALL, RATIO * size), seconds=1 + size // PARSED):
            yield from rows
    except Refused as error:
        if error.kind == "ModuleNotFoundError":
            raise ImportError(str(error)) from error
        raise (ValueError if error.kind not in ("", TooMuch.__name__) else TooMuch)(str(error)) from error
    finally:
        reader.close()


def parquet_rows(file: str, most: int) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of a parquet file in batches; runs in the process that `parquet` starts.

    Args:
        most: bytes that they may take together.
    """
    import pyarrow
    from pyarrow import parquet

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # another sets addresses aside that count
    there = 0
    with parquet.ParquetFile(file) as reading:
        for batch in reading.iter_batches(batch_size=ROWS, use_threads=False):
            there += batch.nbytes + ROW * len(batch)
            if there > most:
                raise TooMuch(f"it unpacks to more than {most:,} bytes")
            yield batch.to_pylist()
