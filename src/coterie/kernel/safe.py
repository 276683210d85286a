"""Safe text for terminals and pages, and commands that can be pasted.

Text of models, tasks, environments and errors is escaped: characters that would move a cursor, hide a line or change
its direction are written out. All output passes through `plain` once, at the place where it is printed: `output.say`,
the console of `report/terminal.py`, the report page and the pages that benchmarks write.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex

ODD = re.compile(r"[^\n\t -~]")
"""Pattern of characters that may have to be written out; line breaks and tabs stay."""


def plain(text: str) -> str:
    """Returns text that is safe on a terminal: control, format and surrogate characters are written out."""
    return ODD.sub(lambda found: found[0] if found[0].isprintable() else f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """Returns text as one safe line: a line break, with the blanks around it, becomes a blank."""
    return plain(re.sub(r"\s*\n\s*", " ", text.strip()))


def command(*words: object) -> str:
    """Returns a `coterie` command as a person pastes it into a shell, each word quoted where it must be."""
    return shlex.join(["coterie", *map(str, words)])


def tell(text: str) -> None:
    """Writes a message to standard error, past every buffer, which a signal may have found half full."""
    with contextlib.suppress(OSError):
        os.write(2, f"\ncoterie: {plain(text)}\n".encode())
