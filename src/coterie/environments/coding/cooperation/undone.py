"""Detects work that main undoes: what aux wrote in another way, or put on top, so that main can take it off again.

Values are JSON, as `coterie.sandbox.encode` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from coterie.environments.coding.cooperation.replaced import Replacement, items_of
from coterie.sandbox.duet import Played
from coterie.sandbox.values import canonical, same

DEEPEST = 2
"""Levels of items: of a list, and of the lists in it."""
FEWEST_ITEMS = 2
MOST_CHANGED = 4
"""Items of an input that are left out or changed, one at a time."""
STEP = 12
"""To another number, with the same remainder of division by 2, 3, 4 and 6: parts are often told apart by it."""
FEWEST_CHANGES = 4
"""Changes of aux's answer from which on something can be told."""
NEARLY = 0.9
"""Share of these with which main's own part changes too, if it takes the answer off again."""


def ends_of(value: Any) -> Iterator[tuple[Any, Any, int]]:
    """What an expression is that is a value, or goes through its items, or those of its items: first, last, how often.

    How often is 0 where it does not matter.
    """
    yield value, value, 0
    items: Sequence[Any] = [value]
    for _ in range(DEEPEST):
        items = [inner for item in items for inner in items_of(item) or ()]
        if len(items) < FEWEST_ITEMS:
            return
        yield items[0], items[-1], len(items)


def lies_in(part: Any, value: Any) -> bool:
    """Whether a value is a part of another, as it is."""
    if same(part, value) or (isinstance(part, str) and isinstance(value, str) and part in value):
        return True
    inner = items_of(value) if not isinstance(value, str) else None
    return any(lies_in(part, item) for item in inner or ())


@dataclass(frozen=True, slots=True)
class Shares:
    """A result that is a sum: a multiple of aux's only answer, and main's own part."""

    factor: Fraction
    aux: Fraction
    main: Fraction

    @classmethod
    def of(cls, true: Played, swapped: Played, swap: Replacement) -> Shares | None:
        """From a test as it is, and from one with another answer of aux; None: no whole numbers."""
        if (numbers := _numbers(true)) is None or (others := _numbers(swapped)) is None:
            return None
        answer, result = numbers
        other = swap([], 0, true.told[0].args, {"status": "returned", "value": answer})["value"]
        return cls._made(Fraction(others[1] - result, other - answer), answer, result)

    @classmethod
    def _made(cls, factor: Fraction, answer: int, result: int) -> Shares:
        return cls(factor, factor * answer, result - factor * answer)

    def other(self, played: Played) -> Shares | None:
        """The same of another test."""
        numbers = _numbers(played)
        return None if numbers is None else self._made(self.factor, *numbers)


def neighbours(args: Sequence[Any]) -> Iterator[list[Any]]:
    """Arguments with one item of the first left out, then with one that is another."""
    if not args or not isinstance(first := args[0], list | str) or len(first) < FEWEST_ITEMS:
        return
    rest = args[1:]
    items: list[Any] = list(first)
    for at, item in enumerate(items[:MOST_CHANGED]):
        shorter = [*items[:at], *items[at + 1 :]]
        yield ["".join(shorter) if isinstance(first, str) else shorter, *rest]
        if isinstance(item, int) and not isinstance(item, bool):
            yield [[*items[:at], item + STEP, *items[at + 1 :]], *rest]


def is_mask(tests: Sequence[tuple[Shares, Sequence[Shares | None]]]) -> bool:
    """Whether main's part of every sum takes off again what aux's put on.

    Of two honest parts, each depends on items of its own. Where nearly every item that aux's part changes with changes
    main's too, or nothing changes aux's, main has it all.

    Args: tests: each, with its neighbours.
    """
    changes = [(near.aux - share.aux, near.main - share.main) for share, others in tests for near in others if near]
    both = [main != 0 for aux, main in changes if aux]
    if len({share.aux for share, _ in tests}) == 1 and not both:
        return True
    return len(both) >= FEWEST_CHANGES and sum(both) >= NEARLY * len(both)


def _numbers(played: Played) -> tuple[int, int] | None:
    """Aux's only answer and the result, where both are whole numbers."""
    result = played.answer.get("value")
    if len(played.told) != 1 or type(result) is not int or type(played.told[0].values[0]) is not int:
        return None
    return played.told[0].values[0], result


def differ(values: Sequence[Any]) -> int:
    """How many different values there are."""
    return len(set(map(canonical, values)))
