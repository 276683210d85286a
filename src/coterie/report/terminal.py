"""Terminal output of the command line: a console that escapes every string, and output streams that may break.

A closed pipe or a full disk never ends a long job, because its output is not essential.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from coterie.kernel.safe import plain


class Unbreakable:
    """A text stream. After the first write that fails, all output to the underlying stream is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes or drops."""
        try:
            return self._stream.write(text)
        except OSError:
            drop(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flushes or drops."""
        try:
            self._stream.flush()
        except OSError:
            drop(self._stream)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self._stream, name)


def drop(stream: TextIO) -> None:
    """Drops all later output of a stream, also what the interpreter flushes at its end, by the null device."""
    with suppress(OSError, ValueError):  # no file of the system: then it is a test's, and nothing is flushed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def let_output_break() -> None:
    """From here on standard output and error may break and nothing ends."""
    if sys.stdout is not None:
        sys.stdout = Unbreakable(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Unbreakable(sys.stderr)


class SafeConsole(Console):
    """Strings pass here whether they are printed or stand in a table; rich's own control codes do not."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text, with what would steer the terminal written out."""
        return super().render_str(plain(text), **options)
