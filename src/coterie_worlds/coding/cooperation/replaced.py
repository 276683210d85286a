"""Values that main gets in place of aux's answers, as JSON that can be sent into a sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any
from zlib import crc32

from coterie_worlds.sandbox.border import Message
from coterie_worlds.sandbox.values import BYTES, SEQUENCES, SETS, TABLES, acting, canonical

Place = tuple[int | None, ...]
"""The way to a part of a value: the number of each item, or None, which stands for every item of a kind."""
DISABLED: Message = {"status": "error", "kind": "RuntimeError", "message": "aux is disabled"}


def other_of_its_type(_: Sequence[Any], at: int, args: Sequence[Any], answer: Message) -> Message:
    """Returns another answer of the same type and shape; equal arguments get equal ones."""
    return _swapped(answer, lambda value: other(value, crc32(json.dumps(args).encode())))


def beside(_: Sequence[Any], at: int, args: Sequence[Any], answer: Message) -> Message:
    """Returns another answer, but for the places in it that only give back an argument, or its items in their order."""
    salt = crc32(json.dumps(args).encode())
    return _swapped(answer, lambda value: other(value, salt, given_back(args, value)))


def given_back(args: Sequence[Any], value: Any) -> set[Place]:
    """Returns the places in an answer that only give back an argument, or its items in their order."""
    known = [[canonical(arg)] for arg in args]
    known += [list(map(canonical, items)) for arg in args if (items := items_of(arg))]
    columns: dict[Place, list[str]] = {}
    for place, part in _parts(value, {canonical(arg) for arg in args}, ()):
        columns.setdefault(place, []).append(canonical(part))
    return {place for place, column in columns.items() if place and column in known}


def _parts(value: Any, whole: Collection[str], place: Place) -> Iterator[tuple[Place, Any]]:
    """Yields the parts of a value, each with its place. whole: what is not taken apart."""
    inner = [] if canonical(value) in whole else list(_placed(value, place))
    if not inner:
        yield place, value
    for there, item in inner:
        yield from _parts(item, whole, there)


def _placed(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Yields the items of a sequence or the values of a table, each with its place.

    The outermost have one place for all where they are of a kind; in a tuple, and further inside, each has its own.
    """
    kind = _kind(value)
    if kind not in (list, *SEQUENCES, *TABLES):
        return
    content = value if kind is list else value[kind]
    items = [item[1] for item in content] if kind in TABLES else content
    many = not place and kind != "tuple" and len({(_kind(item), len(items_of(item) or ())) for item in items}) == 1
    for at, item in enumerate(items):
        yield (*place, None if many else at), item


def earlier(before: Sequence[Any], at: int, args: Sequence[Any], answer: Message) -> Message:
    """Returns the answer to the test before at this place, if there is one."""
    there = 0 <= at < len(before) and not acting(before[at])
    return _swapped(answer, lambda value: before[at] if there and not acting(value) else value)


def argument(_: Sequence[Any], at: int, args: Sequence[Any], answer: Message) -> Message:
    """Returns the call's first argument as the answer, if it is of the answer's type, or its items are."""
    return _swapped(answer, lambda value: _as(args[0], value) if args else value, told=False)


def nothing(_: Sequence[Any], at: int, args: Sequence[Any], answer: Message) -> Message:
    """Returns the empty answer of its type."""
    return _swapped(answer, empty, told=False)


def always(_: Sequence[Any], at: int, args: Sequence[Any], answer: Message) -> Message:
    """Returns True in place of an answer that is True or False; others stay as they are."""
    return _swapped(answer, lambda value: True if isinstance(value, bool) else value, told=False)


Replacement = Callable[[Sequence[Any], int, Sequence[Any], Message], Message]
"""A function of the previous input's answers, and of this answer's place, arguments and value, to another answer."""
OTHERS: tuple[Replacement, ...] = (other_of_its_type, earlier)
"""Replacements by answers that are wrong."""
IDLE: tuple[Replacement, ...] = (argument, nothing, always)
"""Replacements by answers of an aux that does nothing."""


def _swapped(answer: Message, replace: Callable[[Any], Any], *, told: bool = True) -> Message:
    """Returns an answer with another value. told: and with another change of its first argument, else with none."""
    if answer["status"] != "returned":
        return answer
    kept = {key: value for key, value in answer.items() if key != "changed"}
    first = min(answer.get("changed", {}), default="")
    changed = {
        place: other(value, 1) if place == first else value for place, value in answer.get("changed", {}).items()
    }
    changed = changed if told else {}
    return {**kept, "value": replace(answer["value"]), **({"changed": changed} if changed else {})}


def _as(given: Any, value: Any) -> Any:
    """Returns what was given as a value's type; the value itself if that cannot be."""
    kind = _kind(value)
    if _kind(given) == kind:
        return given
    items = list(given) if isinstance(given, list | str) else []
    if isinstance(given, dict) and _kind(given) in (*SEQUENCES, *SETS):
        items = given[_kind(given)]
    if kind in SETS:
        items = list({canonical(item): item for item in items}.values())
    if isinstance(given, str) and kind in BYTES:
        items = [given]
    if not items:
        return value
    return items if kind is list else {kind: items} if kind in (*SEQUENCES, *SETS, *BYTES) else value


def _kind(value: Any) -> Any:
    return next(iter(value)) if isinstance(value, dict) else type(value)


def other(value: Any, salt: int, kept: Collection[Place] = (), place: Place = ()) -> Any:
    """Returns another value of the same type and shape, as JSON; the same salt gives the same.

    Args:
        kept: places in it that stay as they are.
        place: of the value itself.
    """
    if place in kept:
        return value
    match value:
        case bool():
            changed: Any = not value
        case int() | float():
            changed = value + (1, -1, 5, -7, 2)[salt % 5]
        case str():
            changed = "".join(_letter(letter, 1 + (salt + at) % 8) for at, letter in enumerate(value))
            changed = changed if changed != value else f"{value}a"
        case list():
            changed = _others(value, salt, kept, place) or [0]
        case {"float": _}:
            changed = 1.0
        case {"range": [start, stop, step]}:
            changed = {"range": [start + 1, stop + 3, step]}
        case dict():
            ((kind, content),) = value.items()
            if kind in TABLES:
                values = _others(value, salt, kept, place)
                content = [[key, item] for (key, _), item in zip(content, values, strict=True)]
            elif kind in SEQUENCES:
                content = _others(value, salt, kept, place)
            elif kind in (*SETS, *BYTES):  # a set's items change alike, or two of them might be exchanged
                content = [other(item, salt) for item in content]
            changed = {kind: content}
        case _:
            changed = value
    return changed


def _others(value: Any, salt: int, kept: Collection[Place], place: Place) -> list[Any]:
    """Returns other items of a value, or other values of a table."""
    return [other(item, salt + at, kept, there) for at, (there, item) in enumerate(_placed(value, place))]


def items_of(value: Any) -> list[Any] | str | None:
    """Returns the items of a value that has some, else None."""
    if isinstance(value, list | str):
        return value
    return next(iter(value.values())) if isinstance(value, dict) else None


def empty(value: Any) -> Any:
    """Returns the empty value of a value's type; of a tuple, of each of its items."""
    match value:
        case bool() | int() | float() | str() | list():
            return type(value)()
        case {"tuple": items}:
            return {"tuple": [empty(item) for item in items]}
        case {"float": _}:
            return 0.0
        case dict():
            ((kind, _),) = value.items()
            return {kind: []} if kind in (*TABLES, *SEQUENCES, *SETS) else {kind: [""]} if kind in BYTES else value
        case _:
            return value


def _letter(letter: str, steps: int) -> str:
    """Returns another letter or digit of its kind, so many steps on."""
    for kind in ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"):
        if letter in kind:
            return kind[(kind.index(letter) + steps) % len(kind)]
    return letter
