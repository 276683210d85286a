"""Parsing of the action in a reply of `assistants`, and quoting of other people's text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

LONGEST = 200
"""Maximum bytes of a task, of an answer, and of what a line quotes."""
ACTION = re.compile(r"(delegate|tool|final)\((.*)\)")
ANOTHER = re.compile(r"\)\s*(?:delegate|tool|final)\(")
"""The end of an action that another one follows: neither counts."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action chosen by a reply. kind: delegate, tool or final. name: the agent or tool. text: the task or answer."""

    kind: str
    name: str = ""
    text: str = ""
    arguments: Any = None

    def __str__(self) -> str:
        if self.kind == "final":
            return f"final({self.text})"
        return f"{self.kind}({self.name}, {self.text if self.kind == 'delegate' else json.dumps(self.arguments)})"


def parsed(text: str) -> Action | None:
    """Returns the action in a reply: its last line, if that and no other line is one; else None."""
    *thought, last = [line.strip() for line in text.strip().splitlines()] or [""]
    match = ACTION.fullmatch(last)
    if match is None or len(last) > 10 * LONGEST or any(map(ACTION.fullmatch, thought)):
        return None
    kind, content = match[1], match[2].strip()
    if kind != "tool" and ANOTHER.search(last):
        return None
    if kind == "final":
        return Action(kind, text=content) if content else None
    name, _, rest = (part.strip() for part in content.partition(","))
    if not (rest and re.fullmatch(r"\w{1,40}", name)):
        return None
    if kind == "delegate":
        return Action(kind, name, cut(rest))
    arguments = _object(rest)
    return None if arguments is None else Action(kind, name, arguments=arguments)


def _object(text: str) -> dict[str, Any] | None:
    """Returns a text as a JSON object, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def plain(answer: str) -> str:
    """Returns an answer as it is compared: words in lower case."""
    return " ".join(answer.lower().split())


def one_line(text: str) -> str:
    """Returns a text on one line and without ->, so that no part of it reads as a line or as an action's result."""
    return " ".join(word for word in text.split() if word != "->")


def quoted(text: str) -> str:
    """Returns a text on one line, cut to LONGEST bytes, for a quotation."""
    line = one_line(text)
    return line if bytes_of(line) <= LONGEST else f"{cut(line)} …"


def cut(text: str) -> str:
    """Returns the first LONGEST bytes of a text, whole characters."""
    return text.encode(errors="replace")[:LONGEST].decode(errors="ignore")


def bytes_of(text: str) -> int:
    """Returns the length of a text, in bytes of UTF-8."""
    return len(text.encode(errors="replace"))
