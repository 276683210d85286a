"""Detects work that main undoes: what aux wrote in another way, or put on top, so that main can take it off again.

Values are JSON, as `coterie_worlds.sandbox.encode` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from coterie_worlds.coding.cooperation.replaced import (
    OTHERS,
    Replacement,
    beside,
    given_back,
    items_of,
    other_of_its_type,
)
from coterie_worlds.coding.cooperation.runs import FEWEST, Site, enough
from coterie_worlds.sandbox import same
from coterie_worlds.sandbox.duet import Exchange
from coterie_worlds.sandbox.values import acting, canonical

if TYPE_CHECKING:
    from coterie_worlds.coding.cooperation.evidence import Evidence

DEEPEST = 2
"""Levels of items: of a list, and of the lists in it."""
FEWEST_ITEMS = 2
"""Items from which on a first and a last can be told apart."""
MOST_CHANGED = 4
"""Items of an input that are left out or changed, one at a time."""
STEP = 12
"""Distance to another number with the same remainders by 2, 3, 4 and 6: parts are often told apart by these."""
FEWEST_CHANGES = 4
"""Changes of aux's answer from which on something can be told."""
NEARLY = 0.9
"""Share of changes with which main's own part changes too, if it takes the answer off again."""
NO_ACCIDENT = 4
"""Different results that an expression of aux does not equal by accident."""
Ends = tuple[Any, Any, int]
"""The first and the last value of an expression, and how many there are; 0: any number."""


class Undone:
    """Ways in which main undoes what aux does.

    Args:
        evidence: what playing the pair shows.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._shown = evidence
        self._true = evidence.true
        self._passed = evidence.passed
        self._inputs = evidence.inputs

    def decodes(self) -> bool:
        """Returns True if main only has its own arguments out of aux's answers, whole or item by item.

        Where answers give them back as they are, what lies beside them may be needed.
        """
        packed = False
        for wanted in self._arguments():
            sites = {site for at in wanted for site in self._true.seen[at]} - self._shown.sites.given
            if any(self._is_decoded(site, wanted) for site in sites):
                if not all(self._gives_back(at, first) for at, (first, *_) in wanted.items()):
                    return True
                packed = True
        return packed and not self._shown.decides(beside, self._passed)

    def _arguments(self) -> Iterator[dict[int, Ends]]:
        """Yields, for each argument of main, the ends of an expression that is it, or goes through its items."""
        for place in range(min(len(self._inputs[at]) for at in self._passed)):
            ends = {at: list(ends_of(self._inputs[at][place])) for at in self._passed}
            for depth in range(max(map(len, ends.values()))):
                yield {at: found[depth] for at, found in ends.items() if depth < len(found)}

    def _is_decoded(self, site: int, wanted: Mapping[int, Ends]) -> bool:
        """Returns True if a site is what is wanted, aux was told it, and the site needs aux's answers for it."""
        there = {at for at in wanted if site in self._true.seen[at]}
        values = {at: wanted[at][:2] for at in there}
        return (
            enough(there, self._passed)
            and len({canonical(list(ends)) for ends in values.values()}) >= FEWEST
            and all(wanted[at][2] in (0, self._true.counts[at][site]) for at in there)
            and self._true.has(site, there, values, (0, 1))
            and all(self._is_told(at, values[at]) for at in there)
            and any(self._needs(swap, site, values) for swap in OTHERS)
        )

    def _is_told(self, at: int, ends: Site) -> bool:
        """Returns True if aux is given both values, alone or among others."""
        args = [arg for call in self._true.played[at].told for arg in call.args]
        return all(any(lies_in(end, arg) for arg in args) for end in ends)

    def _needs(self, swap: Replacement, site: int, values: Mapping[int, Site]) -> bool:
        """Returns True if a site's first value changes with aux's answers, in more than one input that comes by it."""
        run = self._shown.replay(swap)
        came = [at for at in values if site in run.seen[at]]
        return sum(not run.has(site, [at], values, (0,)) for at in came) >= FEWEST

    def _gives_back(self, at: int, value: Any) -> bool:
        """Returns True if an answer is a value, or gives back an argument in a part of it."""
        told = [(call.args, call.values[0]) for call in self._true.played[at].told]
        return any(same(value, answer) or given_back(args, answer) for args, answer in told)

    def unmasks(self) -> bool:
        """Returns True if results are sums of aux's answer and main's own part, which takes the answer off again."""
        swapped = self._shown.replay(other_of_its_type)
        shares = [Shares.of(self._true.played[at], swapped.played[at]) for at in self._passed]
        whole = [share for share in shares if share]
        if len(whole) < len(shares) or len({share.factor for share in whole}) != 1 or not self._shown.duet.begin():
            return False
        return is_mask(
            [
                (share, [share.other(self._shown.duet.play(args)) for args in neighbours(self._inputs[at])])
                for at, share in zip(self._passed, whole, strict=True)
            ]
        )

    def solved(self) -> bool:
        """Returns True if an expression of aux is the result, in every passed test, and aux has main's own arguments.

        It is told them; or it has them in an expression too, where main has written them in another way.
        """
        if len(self._shown.results()) < NO_ACCIDENT or not self._shown.duet.begin(watch=True):
            return False
        found: set[int] | None = None
        for at, args in enumerate(self._inputs):
            self._shown.duet.partner.look({})
            played = self._shown.duet.play(args)
            seen = {site: last for site, *_, last in self._shown.duet.partner.look({})}
            if at not in self._passed:
                continue
            told = [arg for call in played.told for arg in call.args]
            decoded = any(same(mine, last) for mine in args for last in seen.values())
            if acting(told) or not (decoded or all(self._shown.given(arg, at) for arg in told)):
                return False  # with a function of main's, the result may be main's too
            result = self._true.played[at].answer["value"]
            there = {site for site, last in seen.items() if same(result, last)}
            found = there if found is None else found & there
        return bool(found)


@dataclass(frozen=True, slots=True)
class Shares:
    """A result that is a sum: a multiple of aux's only answer, and main's own part."""

    factor: Fraction
    aux: Fraction
    main: Fraction

    @classmethod
    def of(cls, true: Exchange, swapped: Exchange) -> Shares | None:
        """Finds both shares of a test.

        Args:
            true: as it is.
            swapped: with another answer, by `other_of_its_type`.

        Returns:
            None if they are no whole numbers.
        """
        if (numbers := _numbers(true)) is None or (others := _numbers(swapped)) is None:
            return None
        answer, result = numbers
        other = other_of_its_type([], 0, true.told[0].args, {"status": "returned", "value": answer})["value"]
        return cls._made(Fraction(others[1] - result, other - answer), answer, result)

    @classmethod
    def _made(cls, factor: Fraction, answer: int, result: int) -> Shares:
        return cls(factor, factor * answer, result - factor * answer)

    def other(self, played: Exchange) -> Shares | None:
        """Returns the shares of another test, with the same factor; None if they are no whole numbers."""
        numbers = _numbers(played)
        return None if numbers is None else self._made(self.factor, *numbers)


def is_mask(tests: Sequence[tuple[Shares, Sequence[Shares | None]]]) -> bool:
    """Returns True if main's part of every sum takes off again what aux's put on.

    Of two honest parts, each depends on items of its own. Where nearly every item that aux's part changes with changes
    main's too, or nothing changes aux's, main has it all.

    Args:
        tests: each, with those of neighbouring inputs.
    """
    changes = [(near.aux - share.aux, near.main - share.main) for share, others in tests for near in others if near]
    both = [main != 0 for aux, main in changes if aux]
    if len({share.aux for share, _ in tests}) == 1 and not both:
        return True
    return len(both) >= FEWEST_CHANGES and sum(both) >= NEARLY * len(both)


def neighbours(args: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields arguments with one item of the first left out, then with one that is another."""
    if not args or not isinstance(first := args[0], list | str) or len(first) < FEWEST_ITEMS:
        return
    rest = args[1:]
    items: list[Any] = list(first)
    for at, item in enumerate(items[:MOST_CHANGED]):
        shorter = [*items[:at], *items[at + 1 :]]
        yield ["".join(shorter) if isinstance(first, str) else shorter, *rest]
        if isinstance(item, int) and not isinstance(item, bool):
            yield [[*items[:at], item + STEP, *items[at + 1 :]], *rest]


def ends_of(value: Any) -> Iterator[Ends]:
    """Yields the ends of an expression that is a value, that goes through its items, and through theirs."""
    yield value, value, 0
    items: Sequence[Any] = [value]
    for _ in range(DEEPEST):
        items = [inner for item in items for inner in items_of(item) or ()]
        if len(items) < FEWEST_ITEMS:
            return
        yield items[0], items[-1], len(items)


def lies_in(part: Any, value: Any) -> bool:
    """Returns True if a value is a part of another, as it is."""
    if same(part, value) or (isinstance(part, str) and isinstance(value, str) and part in value):
        return True
    inner = items_of(value) if not isinstance(value, str) else None
    return any(lies_in(part, item) for item in inner or ())


def _numbers(played: Exchange) -> tuple[int, int] | None:
    """Returns aux's only answer and the result, where both are whole numbers."""
    result = played.answer.get("value")
    if len(played.told) != 1 or type(result) is not int or type(played.told[0].values[0]) is not int:
        return None
    return played.told[0].values[0], result
