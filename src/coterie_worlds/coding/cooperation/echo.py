"""Detects answers that only return their arguments, or that only rewrite another answer. Neither takes any work."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from coterie_worlds.coding.cooperation.replaced import empty
from coterie_worlds.sandbox.border import parsed
from coterie_worlds.sandbox.plain import NotPlain, encode
from coterie_worlds.sandbox.values import SEQUENCES, TABLES, canonical, same, written

DEEPEST = 8
"""Maximum levels of packing that are looked into."""
Column = Sequence[Any]
"""One value of each call."""


def echoes(args: Sequence[Sequence[Any]], answers: Column) -> bool:
    """Returns True if answers are nothing, or the same argument in every call, alone or packed.

    Packed is what lies at one place of every answer, beside what never varies and the argument's length; or stands in a
    text that is the same around it, or in JSON.

    Args:
        args: of each call, as plain JSON.
        answers: of each, likewise.
    """
    if not answers:
        return False
    if all(canonical(answer) == canonical(empty(answer)) for answer in answers):
        return True
    columns = zip(*(call[: min(map(len, args))] for call in args), strict=True)
    given = [(column, [arg if isinstance(arg, str) else written(arg) for arg in column]) for column in columns]
    return _says(answers, given, 0) == "given"


def readings(value: Any) -> dict[str, Any]:
    """Returns the ways to write a value, as plain JSON, by name."""
    forms: dict[str, Any] = {"itself": value}
    match value:
        case int() | float() if not isinstance(value, bool):
            forms["text"] = written(value)
        case str():
            forms["letters"] = list(value)
            with suppress(NotPlain, TypeError):
                read = encode(parsed(value))
                forms |= {"read": read} if read is not None else {}
        case list() if all(isinstance(item, str) for item in value):
            forms["joined"] = "".join(value)
        case {"bytes": [text]}:
            forms["decoded"] = text.encode("latin-1").decode("utf-8", "replace")
    if isinstance(value, list | str) and len(value) == 1:
        forms["single"] = value[0]
    return forms


def turned(value: Any) -> dict[str, Any]:
    """Returns the ways to write a value, or no for yes: what main may do on top and add nothing.

    Backwards and negated are not among them: they are steps of tasks, and what they take back cannot be told.
    """
    return readings(value) | ({"not": not value} if isinstance(value, bool) else {})


def _says(column: Column, given: Sequence[tuple[Column, Sequence[str]]], depth: int) -> str:
    """Returns "given" if a place of every answer says what was given, "nothing" if it adds nothing, else "more".

    Args: given: each argument in every call, and as Python writes it.
    """
    read = [readings(arg) for arg in column]
    ways = set.intersection(*(set(forms) for forms in read))
    if any(
        all(same(arg, forms[way]) for arg, forms in zip(args, read, strict=True)) for args, _ in given for way in ways
    ):
        return "given"
    if len(set(map(canonical, column))) == 1 or any(_is_length(sizes, column) for sizes, _ in given):
        return "nothing"
    if depth < DEEPEST and (parts := _parts(column)):
        said = {_says(part, given, depth + 1) for part in parts}
        return "more" if "more" in said else "given" if "given" in said else "nothing"
    return "given" if any(_quotes(texts, column) for _, texts in given) else "more"


def _is_length(given: Column, column: Column) -> bool:
    return all(type(size) is int and size == _length(arg) for arg, size in zip(given, column, strict=True))


def _length(value: Any) -> int | None:
    if isinstance(value, dict):
        value = next(iter(value.values()))
    return len(value) if isinstance(value, list | str) else None


def _parts(column: Column) -> list[Column]:
    """Returns the columns that make up one, if every answer is of one shape; else none."""
    if all(isinstance(arg, str) for arg in column):
        column = [readings(arg).get("read") for arg in column]
    split = [_split(arg) for arg in column]
    if any(parts is None or parts.keys() != (split[0] or {}).keys() for parts in split):
        return []
    return [[parts[place] for parts in split if parts] for place in split[0] or {}]


def _split(value: Any) -> dict[Any, Any] | None:
    """Returns the items of a sequence or a table by place; None for anything else."""
    if isinstance(value, list):
        return dict(enumerate(value))
    if not isinstance(value, dict):
        return None
    ((kind, content),) = value.items()
    if kind in TABLES:
        return {canonical(key): item for key, item in content}
    return dict(enumerate(content)) if kind in SEQUENCES else None


def _quotes(texts: Sequence[str], column: Column) -> bool:
    """Returns True if every answer is a text that is the same around what was given."""
    if not all(isinstance(arg, str) and len(text) <= len(arg) for text, arg in zip(texts, column, strict=True)):
        return False
    longest = max(range(len(texts)), key=lambda at: len(texts[at]))
    before, quoted, behind = column[longest].partition(texts[longest] or "\0")
    return bool(quoted) and all(f"{before}{text}{behind}" == arg for text, arg in zip(texts, column, strict=True))
