"""Proxies for objects on the other side of a sandbox: using a proxy sends a request to the other side.

Functions and iterators can always cross. Other objects cross only between two programs of a team, never into tests,
because an object can claim to equal whatever a test expects.
"""

from __future__ import annotations

import _operator

from coterie_worlds.sandbox.plain import SPLIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Ask = Callable[..., Any]
    """A function that has the other side do something: the thing's number, arguments, keyword arguments, verb."""

UNARY = {"next": next, "len": len, "iter": iter, "str": str, "repr": repr, "bool": bool, "hash": hash, "abs": abs,
         "neg": _operator.neg, "int": int, "float": float, "reversed": reversed}  # fmt: skip
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
TURNED = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor")
"""Operations that are tried the other way round if the left operand does not know the right one."""
KEYED = ("getitem", "setitem", "delitem", "contains")
PASSED: dict[str, Callable[..., Any]] = {
    "call": lambda thing, *args, **kwargs: thing(*args, **kwargs),
    "next": next,
    "send": lambda thing, value: thing.send(value),
}
"""Operations that may be asked of a function or an iterator, by verb."""


def _turned(name: str) -> Callable[..., Any]:
    operation = getattr(_operator, name)
    return lambda thing, left: operation(left, thing)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **PASSED, **UNARY, "getattr": getattr, "setattr": setattr,
    "enter": lambda thing: thing.__enter__(), "exit": lambda thing, *args: thing.__exit__(*args),
    **{name: getattr(_operator, name) for name in (*COMPARED, *TURNED, *KEYED)},
    **{f"r{name}": _turned(name) for name in TURNED},
}  # fmt: skip
"""Operations that may be asked of an object, by verb."""
NAMING = ("getattr", "setattr")
"""Verbs whose first argument is a name in the program."""
PLAIN = "plain"
"""The verb that asks for an object as the data it is."""


class Thing:
    """A proxy of an object of the other side: attributes, methods and operators are asked for there."""

    __slots__ = ("__weakref__", "_ask", "_number")

    def __init__(self, ask: Ask, number: int) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask(self._number, (name,), {}, "getattr")


def _asking(verb: str) -> Callable[..., Any]:
    return lambda thing, *args, **kwargs: thing._ask(thing._number, args, kwargs, verb)  # noqa: SLF001


for _verb in OPERATIONS.keys() - {"getattr", "send"}:
    setattr(Thing, f"__{_verb.rstrip('_')}__", _asking(_verb))


class Iterator:
    """A proxy of an iterator of the other side."""

    def __init__(self, ask: Ask, number: int) -> None:
        self.ask = ask
        self.number = number

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self.ask(self.number, (), {}, "next")

    def send(self, value: Any) -> Any:
        """Sends a value to the generator, and returns the next that it yields."""
        return self.ask(self.number, (value,), {}, "send")


class Things:
    """Things that one side has given to the other, by number, and proxies of the other's things.

    Args:
        ask: has the other side do something.
        objects: objects cross too.
    """

    def __init__(self, ask: Ask, *, objects: bool) -> None:
        self.ask = ask
        self.objects = objects
        self.given: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.strangers: dict[int, Thing] = {}

    def hold(self, thing: Any) -> dict[str, list[int]] | None:
        """Returns the kind and number as which something that acts crosses, one per object; None: it is data."""
        if isinstance(thing, Thing):
            return {"object": [-1 - thing._number]}  # noqa: SLF001  (back where it lives)
        if self.objects and is_object(thing):
            number = self.numbers.get(id(thing))
            if number is None:
                number = self.numbers[id(thing)] = self.keep(thing)
            return {"object": [number]}
        if callable(thing):
            return {"function": [self.keep(thing)]}
        return {"iterator": [self.keep(thing)]} if hasattr(type(thing), "__next__") else None

    def keep(self, thing: Any) -> int:
        """Keeps something, and returns the number under which the other side may use it."""
        self.given.append(thing)
        return len(self.given) - 1

    def proxy(self, kind: str, number: int) -> Any:
        """Returns a proxy of the other side's thing, or the own thing that comes home. Raises: LookupError."""
        if kind == "function":
            return lambda *args, **kwargs: self.ask(number, args, kwargs)
        if kind == "iterator":
            return Iterator(self.ask, number)
        if not self.objects:
            raise LookupError("no object crosses here")
        if number < 0:
            return self.given[-1 - number]
        return self.strangers.setdefault(number, Thing(self.ask, number))

    def used(self, target: int, verb: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Uses something that was given, and returns the result.

        Raises:
            LookupError: nothing that may be done with it.
        """
        operations = OPERATIONS if self.objects else PASSED
        return operations[verb](self.given[target], *args, **kwargs)


def is_object(thing: Any) -> bool:
    """Returns True if something is more than data, a function or an iterator: a program's own class, or one of its."""
    kind = type(thing)
    if isinstance(thing, type) or (kind.__module__ == "program" and not issubclass(kind, (str, int, float))):
        return True
    plain = any(base in SPLIT for base in kind.__mro__)
    return not plain and not callable(thing) and not hasattr(kind, "__next__")
