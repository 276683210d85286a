"""Text for people: what may reach a terminal or a page, and commands that can be pasted.

What models, tasks, environments and errors write is shown as text: characters that would move a cursor, hide
a line or turn its direction are written out. Whatever is printed goes through `plain`, once, where it is printed:
`output.say`, the console of `report/terminal.py`, the report's page and the pages that benchmarks write.
"""

from __future__ import annotations

import re
import shlex

KEPT = "\n\t"
"""The control characters that stay."""


def plain(text: str) -> str:
    """Text that is safe on a terminal: control, format and surrogate characters are written out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in KEPT else f"\\x{ord(char):02x}" for char in text)


def one_line(text: str) -> str:
    """Text as one safe line: a line break, with the blanks around it, becomes a blank."""
    return plain(re.sub(r"\s*\n\s*", " ", text.strip()))


def command(*words: object) -> str:
    """A `coterie` command as a person pastes it into a shell, each word quoted where it must be."""
    return shlex.join(["coterie", *map(str, words)])
