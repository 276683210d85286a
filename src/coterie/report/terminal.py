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
        """Writes text, or drops it."""
        try:
            return self._stream.write(text)
        except OSError:
            drop(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flushes the stream, or drops its output."""
        try:
            self._stream.flush()
        except OSError:
            drop(self._stream)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the underlying stream, for everything else is its own."""
        return getattr(self._stream, name)


def drop(stream: TextIO) -> None:
    """Drops all later output of a stream, also what the interpreter flushes at its end, by the null device."""
    with suppress(OSError, ValueError):  # no file of the system: then it is a test's, and nothing is flushed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def let_output_break() -> None:
    """Lets standard output and error break from here on, and nothing ends by it."""
    if sys.stdout is not None:
        sys.stdout = Unbreakable(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Unbreakable(sys.stderr)


class SafeConsole(Console):
    """A console that makes strings safe, whether printed or in a table; rich's own control codes stay as they are."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Returns the text, with what would steer the terminal written out."""
        return super().render_str(plain(text), **options)
