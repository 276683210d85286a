"""Parsing of the action in a reply of `assistants`, and quoting of other people's text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

LONGEST = 200
"""Bytes of a task, of an answer, and of what a line quotes."""
ACTION = re.compile(r"(delegate|tool|final)\((.*)\)")
ANOTHER = re.compile(r"\)\s*(?:delegate|tool|final)\(")
"""An action that is followed by one: neither counts."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a call decided. kind: delegate, tool or final. name: the agent or tool. text: the task or answer."""

    kind: str
    name: str = ""
    text: str = ""
    arguments: Any = None

    def __str__(self) -> str:
        if self.kind == "final":
            return f"final({self.text})"
        return f"{self.kind}({self.name}, {self.text if self.kind == 'delegate' else json.dumps(self.arguments)})"


def parsed(text: str) -> Action | None:
    """The action in a reply: its last line, where that and no other line is one."""
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
    """A JSON object, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def plain(answer: str) -> str:
    """An answer as it is compared: words in lower case."""
    return " ".join(answer.lower().split())


def one_line(text: str) -> str:
    """What somebody wrote, in which nothing reads as a line of its own or as what an action gave."""
    return " ".join(word for word in text.split() if word != "->")


def quoted(text: str) -> str:
    """That, bounded."""
    line = one_line(text)
    return line if bytes_of(line) <= LONGEST else f"{cut(line)} …"


def cut(text: str) -> str:
    """The first LONGEST bytes, whole characters."""
    return text.encode(errors="replace")[:LONGEST].decode(errors="ignore")


def bytes_of(text: str) -> int:
    """How long a text is, in bytes of UTF-8."""
    return len(text.encode(errors="replace"))
