"""Prompts as plain text with placeholders, such as `{question} A solver says {solver}. Is that right?`.

`{name}` stands for a value; `{{` and `}}` are braces. Values are inserted once and never read again, so braces in a
question or a reply stay as they are. Names of roles stand for their last replies. A line whose only placeholders are
roles that have not spoken yet is left out, so that one text serves the first round and the later ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

PART = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}|[{}]|[^{}]+")


@lru_cache(maxsize=256)
def parts(text: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Returns the lines of a prompt text, each as pairs of plain text and the name of the placeholder behind it, or "".

    Raises:
        ValueError: a brace that belongs to no placeholder.
    """
    lines: list[tuple[tuple[str, str], ...]] = []
    for line in text.splitlines():
        pairs: list[tuple[str, str]] = []
        plain = ""
        for part in PART.finditer(line):
            if part[0] in ("{", "}"):
                raise ValueError(
                    f"a single {part[0]} in {_short(line)}; write {{name}} for a value, and {part[0] * 2} for the sign"
                )
            if part[1] is None:
                plain += {"{{": "{", "}}": "}"}.get(part[0], part[0])
            elif part[1].strip():
                pairs.append((plain, part[1].strip()))
                plain = ""
            else:
                raise ValueError(f"{{}} in {_short(line)} names nothing; write {{question}}, or {{{{}}}} for the signs")
        lines.append((*pairs, (plain, "")))
    return tuple(lines)


def names(text: str) -> list[str]:
    """Returns the names of a text's placeholders, in order. Raises ValueError: as `parts`."""
    return list(dict.fromkeys(name for line in parts(text) for _, name in line if name))


def filled(text: str, values: Mapping[str, str], silent: Collection[str] = ()) -> str:
    """Returns a text with values in place of its placeholders.

    Args:
        values: by name; a name that has none stands for "".
        silent: names of roles that have not spoken: a line that has these alone is left out.
    """
    lines: list[str] = []
    for line in parts(text):
        mentioned = [name for _, name in line if name]
        if mentioned and all(name in silent for name in mentioned):
            continue
        lines.append("".join(plain + values.get(name, "") for plain, name in line))
    return "\n".join(lines).strip("\n")


def _short(line: str) -> str:
    shown = line.strip()
    return f"'{shown}'" if len(shown) <= 60 else f"'{shown[:60]}…'"
