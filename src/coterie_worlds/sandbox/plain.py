"""Values that cross the border of a sandbox, as JSON: plain data without behaviour.

This module is sent into the sandbox, so it imports only modules that load fast. A value of a subclass is converted by
the methods of its base class. So an object that claims to equal everything crosses as its plain data.
"""

from __future__ import annotations

from _collections import OrderedDict, defaultdict, deque  # pyright: ignore[reportMissingImports]

from coterie_worlds.sandbox.wire import dumps

TYPE_CHECKING = False  # typing itself takes longer to import than the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Hold = Callable[[Any], dict[str, list[int]] | None]
    """A function that gives the kind and number as which something that is no data crosses; None: it is data."""

DEEPEST = 64
"""Maximum depth of nesting of a plain value."""
LARGEST_BITS = 10_000
"""Maximum number of bits of an integer: JSON writes it in decimal, which Python bounds."""


class NotPlain(ValueError):
    """Raised for a value that is not plain data."""


def encode(value: Any, hold: Hold | None = None, depth: int = 0) -> Any:
    """Returns a plain value as JSON.

    Args:
        hold: of what is no data, which crosses as a number; None: it does not cross.

    Raises:
        NotPlain: nothing that can cross, or nested too deep.
    """
    kind = type(value)
    if depth > DEEPEST:
        raise NotPlain(f"nested more than {DEEPEST} deep")
    if value is None or kind is bool or kind is str or kind is int or kind is float:
        return _scalar(value)
    if kind.__module__ == "numpy":
        return encode(value.tolist(), hold, depth + 1)
    if isinstance(value, type) and TYPES.get(value.__name__) is value:
        return {"type": [value.__name__]}
    if hold is not None and (held := hold(value)) is not None:
        return held
    for base in kind.__mro__:
        if base.__module__ == "collections" and base.__name__ == "Counter":
            return COUNTED(value, hold, depth + 1)
        if base in SPLIT:
            return SPLIT[base](value, hold, depth + 1)
    raise NotPlain(f"a value of type {kind.__name__} is not plain data")


def decode(value: Any, proxy: Callable[[str, int], Any] | None = None, depth: int = 0) -> Any:
    """Returns the plain value of some JSON.

    Args:
        proxy: makes what stands for something of the other side, of its kind and number.

    Raises:
        NotPlain: nothing that `encode` writes.
    """
    if depth > DEEPEST + 2:
        raise NotPlain(f"nested more than {DEEPEST} deep")
    if isinstance(value, list):
        return [decode(item, proxy, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        ((kind, content),) = value.items()
        if proxy is not None and kind in ACTING:
            return proxy(kind, int(content[0]))
        return BUILD[kind]([decode(item, proxy, depth + 1) for item in content])
    except NotPlain:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise NotPlain("unknown data") from error


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return str.encode(value, "utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and int.bit_length(value) > LARGEST_BITS:
        raise NotPlain(f"an integer of more than {LARGEST_BITS} bits")
    if isinstance(value, float) and value - value != 0:
        return {"float": [float.__repr__(value)]}
    return value


def _items(name: str, each: Callable[[Any], Iterator[Any]]) -> Callable[[Any, Hold | None, int], Any]:
    return lambda value, hold, depth: {name: [encode(item, hold, depth) for item in each(value)]}


def _unordered(name: str, each: Callable[[Any], Iterator[Any]]) -> Callable[[Any, Hold | None, int], Any]:
    """Returns a function that encodes a set's items in an order that is the same in every process."""
    return lambda value, hold, depth: {name: sorted((encode(item, hold, depth) for item in each(value)), key=dumps)}


def _pairs(name: str) -> Callable[[Any, Hold | None, int], Any]:
    return lambda table, hold, depth: {
        name: [[encode(key, hold, depth), encode(item, hold, depth)] for key, item in dict.items(table)]
    }


SPLIT: dict[type, Callable[[Any, Hold | None, int], Any]] = {
    str: lambda text, *_: _scalar(str.__str__(text)),
    bool: lambda value, *_: value,
    int: lambda number, *_: _scalar(int.__int__(number)),
    float: lambda number, *_: _scalar(float.__float__(number)),
    list: lambda items, hold, depth: [encode(item, hold, depth) for item in list.__iter__(items)],
    tuple: _items("tuple", tuple.__iter__),
    deque: _items("deque", deque.__iter__),
    range: lambda value, *_: {"range": [value.start, value.stop, value.step]},
    set: _unordered("set", set.__iter__),
    frozenset: _unordered("frozenset", frozenset.__iter__),
    type({}.keys()): _items("list", iter),
    type({}.values()): _items("list", iter),
    type({}.items()): _items("list", iter),
    defaultdict: _pairs("dict"),
    OrderedDict: _pairs("OrderedDict"),
    dict: _pairs("dict"),
    bytes: lambda data, *_: {"bytes": [bytes.decode(data, "latin-1")]},
    bytearray: lambda data, *_: {"bytearray": [bytearray.decode(data, "latin-1")]},
    complex: lambda number, hold, depth: {
        "complex": [encode(number.real, hold, depth), encode(number.imag, hold, depth)]
    },
}
COUNTED = _pairs("Counter")
"""A function that encodes a Counter, which is known by its name: its module starts slowly."""
ACTING = ("function", "iterator", "object")


def _counter(counts: dict[Any, Any]) -> Any:
    from collections import Counter

    return Counter(counts)


CLASSES = (int, float, str, bool, list, dict, tuple, set, frozenset, bytes, complex, object)
TYPES = {cls.__name__: cls for cls in CLASSES}
"""Classes that may cross the border, by their names."""
BUILD: dict[str, Callable[[list[Any]], Any]] = {
    "float": lambda parts: {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[parts[0]],
    "type": lambda parts: TYPES[parts[0]],
    "tuple": tuple,
    "list": list,
    "deque": deque,
    "range": lambda parts: range(*map(int, parts)),
    "set": set,
    "frozenset": frozenset,
    "dict": lambda pairs: {key: item for key, item in pairs},  # noqa: C416  (a pair of another length is an error)
    "Counter": lambda pairs: _counter({key: item for key, item in pairs}),  # noqa: C416
    "OrderedDict": lambda pairs: OrderedDict((key, item) for key, item in pairs),
    "bytes": lambda parts: parts[0].encode("latin-1"),
    "bytearray": lambda parts: bytearray(parts[0].encode("latin-1")),
    "complex": lambda parts: complex(*parts),
}
