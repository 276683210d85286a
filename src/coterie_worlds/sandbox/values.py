"""Values from a sandbox on the host: they are inspected, compared and written only as JSON.

No objects are built from them. So none of their keys is hashed, and none of their methods is called.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from coterie_worlds.sandbox.plain import ACTING, DEEPEST, LARGEST_BITS, TYPES

FLOAT_BITS = 1024
"""Number of bits from which on an integer is larger than any float."""

SEQUENCES = ("tuple", "deque", "list")
TABLES = ("dict", "Counter", "OrderedDict")
SETS = ("set", "frozenset")
BYTES = ("bytes", "bytearray")


def is_plain(value: Any, depth: int = 0) -> bool:
    """Returns True if some JSON has the form that `encode` writes: looked at, not built."""
    if depth > DEEPEST + 2:
        return False
    if isinstance(value, list):
        return all(is_plain(item, depth + 1) for item in value)
    if not isinstance(value, dict):
        return type(value) is not int or value.bit_length() <= LARGEST_BITS
    kind, content = next(iter(value.items()), ("", None))
    if len(value) != 1 or kind not in FITS or not isinstance(content, list):
        return False
    return FITS[kind](content) and all(is_plain(item, depth + 1) for item in content)


def acting(value: Any) -> list[int]:
    """Returns the numbers of the functions, iterators and objects in a plain value."""
    if isinstance(value, list):
        return [number for item in value for number in acting(item)]
    if not isinstance(value, dict):
        return []
    ((kind, content),) = value.items()
    return content if kind in ACTING else acting(content)


def _are(*kinds: type) -> Callable[[list[Any]], bool]:
    return lambda content: [type(item) for item in content] == list(kinds)


def _is_real(value: Any) -> bool:
    """Returns True if a part of a complex number is one that a float can hold."""
    if type(value) is int:
        return value.bit_length() < FLOAT_BITS
    return type(value) is float or value in ({"float": ["nan"]}, {"float": ["inf"]}, {"float": ["-inf"]})


def _are_pairs(content: list[Any]) -> bool:
    return all(isinstance(pair, list) and len(pair) == 2 for pair in content)


def _are_bytes(content: list[Any]) -> bool:
    return _are(str)(content) and all(letter < "\u0100" for letter in content[0])


FITS: dict[str, Callable[[list[Any]], bool]] = {
    **dict.fromkeys((*SEQUENCES, *SETS), lambda _: True),
    **dict.fromkeys(TABLES, _are_pairs),
    **dict.fromkeys(BYTES, _are_bytes),
    **dict.fromkeys(ACTING, _are(int)),
    "float": lambda content: content in (["nan"], ["inf"], ["-inf"]),
    "type": lambda content: len(content) == 1 and content[0] in list(TYPES),
    "range": lambda content: _are(int, int, int)(content) and content[2] != 0 and max(map(abs, content)) < 1 << 62,
    "complex": lambda content: len(content) == 2 and all(map(_is_real, content)),
}
"""Checks of the content of each kind of value."""


def same(expected: Any, given: Any) -> bool:
    """Returns True if two plain values, as JSON, are equal as in Python, with tolerance where a float is expected.

    Sequences are equal by their items, whatever their type; True and False are no numbers here.
    """
    if isinstance(expected, dict) and "either" in expected:
        return any(same(choice, given) for choice in expected["either"])
    if expected is None or isinstance(expected, bool | str):
        return type(expected) is type(given) and expected == given
    if (number := _number(expected)) is not None:
        other = _number(given)
        return other is not None and _close(number, other)
    if (items := _sequence(expected)) is not None:
        others = _sequence(given)
        return others is not None and len(items) == len(others) and all(map(same, items, others))
    return _same_unordered(*_split(expected), *_split(given))


def _same_unordered(kind: str, content: list[Any], other: str, given: list[Any]) -> bool:
    if kind in TABLES and other in TABLES and len(content) == len(given):
        table = {canonical(key): item for key, item in content}
        others = {canonical(key): item for key, item in given}
        return table.keys() == others.keys() and all(same(item, others[key]) for key, item in table.items())
    if kind in SETS and other in SETS:
        return len(content) == len(given) and sorted(map(canonical, content)) == sorted(map(canonical, given))
    return (kind == other or (kind in BYTES and other in BYTES)) and content == given


def canonical(value: Any) -> str:
    """Returns a plain value as text that equal ones share: 1, 1.0 and True are one key of a dict."""
    if isinstance(value, bool):
        return str(int(value))
    if (number := _number(value)) is not None:
        return str(int(number.real)) if number == _whole(number) else repr(number)
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    kind, content = _split(value)
    if kind in TABLES:
        return f"{kind}({','.join(sorted(f'{canonical(key)}:{canonical(item)}' for key, item in content))})"
    parts = sorted(map(canonical, content)) if kind in SETS else map(canonical, content)
    return f"{'set' if kind in SETS else kind}({','.join(parts)})"


def written(value: Any) -> str:
    """Returns a plain value, given as JSON, as Python writes it; a set's items in order, the same in every process."""
    if isinstance(value, list):
        return f"[{_listed(value)}]"
    if not isinstance(value, dict):
        return repr(value)
    kind, content = _split(value)
    if kind in WRITTEN:
        return WRITTEN[kind](content)
    inner = [{"tuple": pair} for pair in content] if kind in TABLES else content
    return f"{kind}({written(inner) if inner else ''})"


def _listed(items: list[Any]) -> str:
    return ", ".join(map(written, items))


WRITTEN: dict[str, Callable[[list[Any]], str]] = {
    "float": lambda content: content[0],
    "tuple": lambda content: f"({_listed(content)}{',' * (len(content) == 1)})",
    "dict": lambda content: f"{{{', '.join(f'{written(key)}: {written(item)}' for key, item in content)}}}",
    "set": lambda content: f"{{{', '.join(sorted(map(written, content)))}}}" if content else "set()",
    "bytes": lambda content: repr(content[0].encode("latin-1")),
    "bytearray": lambda content: f"bytearray({content[0].encode('latin-1')!r})",
    "complex": lambda content: repr(_number({"complex": content})),
    "range": lambda content: f"range({_listed(content)})",
    "type": lambda content: content[0],
}
"""Functions that write a kind of value as Python does; the other kinds are calls of their names."""


def _split(value: Any) -> tuple[str, list[Any]]:
    if not isinstance(value, dict):
        return "", [value]
    ((kind, content),) = value.items()
    return kind, content


def _sequence(value: Any) -> list[Any] | range | None:
    if isinstance(value, list):
        return value
    kind, content = _split(value)
    if kind == "range":
        made = range(*content)
        return made if len(made) <= LARGEST_BITS else None
    return content if kind in SEQUENCES else None


def _number(value: Any) -> int | float | complex | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match value:
        case {"float": [str(text)]}:
            return float(text)
        case {"complex": [real, imag]} if (x := _number(real)) is not None and (y := _number(imag)) is not None:
            return None if isinstance(x, complex) or isinstance(y, complex) else complex(x, y)
    return None


def _whole(number: complex) -> int | None:
    """Returns a finite number without a fraction as an integer; None for others."""
    if isinstance(number, int):
        return number
    real = number.real
    return int(real) if number.imag == 0 and math.isfinite(real) and real == math.floor(real) else None


def _close(expected: complex, given: complex) -> bool:
    if expected == given:
        return True
    if not isinstance(expected, float) or isinstance(given, complex):
        return False
    if isinstance(given, int) and given.bit_length() >= FLOAT_BITS:
        return False  # larger than any float
    return math.isclose(expected, given, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(expected) and math.isnan(given))
