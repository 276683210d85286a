"""JSON with the C functions on which Python's `json` is built.

This module is sent into the sandbox. `json` itself imports regular expressions, which takes as long as starting Python.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Usual:
    """Settings with which `json.loads` reads."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012


def _unknown(value: object) -> None:
    raise TypeError(f"{type(value).__name__} is no JSON")


_scan = make_scanner(_Usual)  # pyright: ignore[reportArgumentType]
_parts = make_encoder(None, _unknown, encode_basestring_ascii, None, ": ", ", ", False, False, True)


def dumps(value: Any) -> str:
    """Returns a value as JSON, in ASCII, on one line."""
    return "".join(_parts(value, 0))


def loads(line: str) -> Any:
    """Returns the value of some JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        return _scan(line.strip(), 0)[0]
    except StopIteration:
        raise ValueError("no JSON") from None
