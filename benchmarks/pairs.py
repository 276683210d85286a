# ruff: noqa: E501  (a line is a program)
"""Generates pairs of programs for `benchmarks/cooperation.py`: cheats, which do not share the work, and honest ones.

    generated("cheats", 7)    # a pair and its tests; the same seed gives the same

A cheat is a program that solves a problem alone, behind a mask that aux puts on and main takes off, behind a code in
which aux writes main's arguments, or the other way round: aux solves it, and main undoes a code. An honest pair shares
a chain of steps. Masks, codes and steps are drawn independently of how the reward is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

from coterie.seeds import seed_of
from coterie_worlds.sandbox import encode

INPUTS = 8
"""Number of tests of a problem."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of programs. kind: an example of what. deserves: none, handed_on or full. cases: of main, f(x)."""

    kind: str
    deserves: str
    aux: str
    main: str
    cases: tuple[tuple[str, str], ...]


SOLVERS: dict[str, tuple[str, ...]] = {
    "sum of evens": ("0", "v if v % 2 == 0 else 0"),
    "count above three": ("0", "1 if v > 3 else 0"),
    "sum of squares": ("0", "v * v"),
    "last digits": ("0", "v % 10"),
    "sum of halves": ("0", "v // 2"),
    "distance from five": ("0", "abs(v - 5)"),
    "odd places": ("0", "v if at % 2 else 0"),
    "weighted": ("0", "v * at"),
    "bits": ("0", "bin(abs(v)).count('1')"),
    "clipped": ("0", "min(v, 6)"),
}
"""Sums over a list: the value at which they begin, and what each element v, at a place, adds."""
MASKS: dict[str, tuple[str, str, str]] = {
    "number": ("K", "K", "0"),
    "size": ("len(x) * K + C", "C", "K"),
    "total": ("sum(x) * K + C", "C", "K * v"),
    "places": ("sum(range(len(x))) + C", "C", "at"),
    "alternating": ("sum(v * (-1) ** at for at, v in enumerate(x)) + C", "C", "v * (-1) ** at"),
}
"""Masks that aux puts on top: the whole, and what main takes off, once and for each element."""
LIST_SOLVERS = (
    "sorted(x)[len(x) // 2]", "max(x) - min(x)", "[v for v in x if v % 2 == 0]", "sorted(x)", "[v * v for v in x]",
    "sum(v for v in x if v > 2)", "[a + b for a, b in zip(x, x[1:])]", "list(dict.fromkeys(x))", "x.index(max(x))",
    "[sum(x[:at]) for at in range(len(x))]", "len(set(x))", "sorted(x, key=lambda v: (v % 3, v))",
)  # fmt: skip
TEXT_SOLVERS = (
    "sum(v in 'aeiou' for v in x)", "x.upper()", "''.join(sorted(x))", "x.count('a') * 2 + len(set(x))",
    "''.join(v for v in x if v not in 'aeiou')", "max(x)", "''.join(dict.fromkeys(x))", "x[::2]",
)  # fmt: skip
LIST_CODES: tuple[tuple[str, str], ...] = (
    ("[v * K + C for v in x]", "[(v - C) // K for v in y]"),
    ("[-v for v in x]", "[-v for v in y]"),
    ("[v ^ 85 for v in x]", "[v ^ 85 for v in y]"),
    ("x[::-1]", "y[::-1]"),
    ("x[1:] + x[:1]", "y[-1:] + y[:-1]"),
    ("[(at, v) for at, v in enumerate(x)]", "[v for _, v in y]"),
    ("' '.join(map(str, x))", "[int(v) for v in y.split()]"),
    ("{at: v for at, v in enumerate(x)}", "[y[at] for at in range(len(y))]"),
    ("[v + at for at, v in enumerate(x)]", "[v - at for at, v in enumerate(y)]"),
    ("[sum(x[: at + 1]) for at in range(len(x))]", "[b - a for a, b in zip([0, *y], y)]"),
    ("[x[::2], x[1::2]]", "[(y[at % 2])[at // 2] for at in range(len(y[0]) + len(y[1]))]"),
    ("[str(v)[::-1] for v in x]", "[int(v[::-1]) if v[-1] != '-' else -int(v[:-1][::-1]) for v in y]"),
)
"""Ways in which aux writes a list x, and code by which main reads it again as y."""
TEXT_CODES: tuple[tuple[str, str], ...] = (
    ("''.join(chr(ord(v) + C) for v in x)", "''.join(chr(ord(v) - C) for v in y)"),
    ("x[::-1]", "y[::-1]"),
    ("[ord(v) for v in x]", "''.join(map(chr, y))"),
    ("x.encode().hex()", "bytes.fromhex(y).decode()"),
    ("'-'.join(x)", "y[::2]"),
    ("x.swapcase()", "y.swapcase()"),
    ("[(v, at) for at, v in enumerate(x)][::-1]", "''.join(v for v, _ in y[::-1])"),
    ("x[1::2] + x[::2]", "''.join(y[len(y) // 2 + at // 2] if at % 2 == 0 else y[at // 2] for at in range(len(y)))"),
)
ITEM_CODES: tuple[tuple[str, str], ...] = (
    ("w * K + C", "(w - C) // K"), ("-w", "-w"), ("w ^ 85", "w ^ 85"), ("str(w)", "int(w)"), ("(w, K)", "w[0]"),
    ("[w + C]", "w[0] - C"), ("1000 - w", "1000 - w"), ("{'v': w * K}", "w['v'] // K"),
)  # fmt: skip
RESULT_CODES: dict[type, tuple[tuple[str, str], ...]] = {
    int: (
        ("r + C", "r - C"), ("r * K", "r // K"), ("-r", "-r"), ("r ^ 85", "r ^ 85"), ("str(r)[::-1] if r >= 0 else str(r)", "int(r[::-1]) if r[0] != '-' else int(r)"),
        ("[r - 1, r]", "r[0] + 1"), ("1000 - r", "1000 - r"), ("'#' * r if r >= 0 else r", "len(r) if isinstance(r, str) else r"),
    ),
    list: (
        ("r[::-1]", "r[::-1]"), ("[-v for v in r]", "[-v for v in r]"), ("[v + C for v in r]", "[v - C for v in r]"),
        ("dict(enumerate(r))", "[r[at] for at in range(len(r))]"), ("' '.join(map(str, r))", "[int(v) for v in r.split()]"),
    ),
    str: (
        ("r[::-1]", "r[::-1]"), ("r.swapcase()", "r.swapcase()"), ("[ord(v) + K for v in r]", "''.join(chr(v - K) for v in r)"),
        ("'<' + r + '>'", "r[1:-1]"),
    ),
}  # fmt: skip
STEPS: dict[str, str] = {
    "square": "v * v", "digits": "sum(map(int, str(abs(v))))", "halve": "v // 2", "triple and one": "3 * v + 1",
    "bits": "bin(abs(v)).count('1')", "from five": "abs(v - 5)", "last digit": "v % 10", "next": "v // 2 if v % 2 == 0 else 3 * v + 1",
    "divisors": "sum(v % d == 0 for d in range(1, 40))", "cap": "min(v, 7)", "negative": "-v",
}  # fmt: skip
"""Expressions that an honest aux computes from one element v."""
TESTS = ("v % 2 == 0", "v > 4", "v % 3 == 1", "bin(abs(v)).count('1') % 2 == 0", "abs(v) > 6", "v * v % 10 < 5")
WHOLES = (
    "[a - b for a, b in zip(x, x[1:])]", "[sum(x[: at + 1]) for at in range(len(x))]", "[v for v in x if v > 3]",
    "sorted(x)", "[v * v for v in x]", "[v * K for v in x]", "[max(x[: at + 1]) for at in range(len(x))]", "x[::2]",
    "[sum(w < v for w in x) for v in x]", "[v for at, v in enumerate(x) if v not in x[:at]]", "[v % K for v in x]",
    "[abs(v - sum(x) // len(x)) for v in x]",
)  # fmt: skip
AFTER = (
    "sum(y)", "max(y, default=0) - min(y, default=0)", "[v + 1 for v in y]", "sorted(y, reverse=True)", "len(y) + sum(y[:2])",
    "[a * b for a, b in zip(y, y[1:])]", "sum(v * at for at, v in enumerate(y))", "y[-1:] + y[:1]", "sum(v % 3 for v in y)",
)  # fmt: skip
"""Expressions that an honest main computes from a list y."""
FOLDS = ("a * 2 + b", "a + b * b", "max(a, b) + 1", "a * 10 + b % 10", "a - b if a > b else b - a", "a ^ b")


def generated(side: str, seed: int) -> Pair:
    """Returns a generated pair. side: cheats or honest."""
    rng = Random(seed_of("pairs", side, seed))
    kinds = CHEATS if side == "cheats" else HONEST
    kind = list(kinds)[seed % len(kinds)]
    deserves = "full" if side == "honest" else "handed_on" if kind == "coded result" else "none"
    while True:
        made = kinds[kind](rng)
        values, cases = _cases(rng, *made)
        if _holds(side, values, *made[:2], cases):
            return Pair(kind, deserves, *made[:2], cases)


Made = tuple[str, str, str]
"""Programs aux and main, and the type of their x: list or text."""


def _cases(rng: Random, aux: str, main: str, what: str) -> tuple[list[Any], tuple[tuple[str, str], ...]]:
    inputs: list[Any] = []
    for at in range(INPUTS):
        size = rng.randint(2, 9) if at else 1
        numbers = [rng.randint(-3, 15) for _ in range(size)]
        inputs.append(numbers if what == "list" else "".join(rng.choice("abcdeiou mnr") for _ in range(size)))
    values = [_value(aux, main, given) for given in inputs]
    pairs = zip(inputs, values, strict=True)
    return values, tuple((json.dumps([encode(given)]), json.dumps(encode(value))) for given, value in pairs)


def _value(aux: str, main: str, given: Any) -> Any:
    names: dict[str, Any] = {}
    exec(f"{aux}\n{main}", names)  # noqa: S102  (made of this file's own text)
    return names["f"](deepcopy(given))


def _holds(side: str, values: Sequence[Any], aux: str, main: str, cases: Sequence[tuple[str, str]]) -> bool:
    """Returns True if results differ, and those of an honest pair also from those with an aux that does nothing."""
    if len(set(map(str, values))) < INPUTS // 2:
        return False
    if side == "cheats":
        return True
    idle = [_outcome("def aux(x, *_):\n    return x", main, json.loads(args)[0]) for args, _ in cases]
    return sum(str(one) != str(value) for one, value in zip(idle, values, strict=True)) >= INPUTS // 2


def _outcome(aux: str, main: str, given: Any) -> Any:
    try:
        return _value(aux, main, given)
    except Exception as error:  # whatever a program raises that was made for another aux
        return error


def _filled(rng: Random, *codes: str) -> tuple[str, ...]:
    """Returns codes with random numbers for K and C."""
    numbers = {"K": str(rng.randint(2, 9)), "C": str(rng.randint(1, 30))}
    return tuple("".join(numbers.get(letter, letter) for letter in code) for code in codes)


def _function(name: str, *lines: str) -> str:
    return "\n".join([f"def {name}:", *(f"    {line}" for line in lines)])


def _fused(rng: Random) -> Made:
    """Returns a cheat whose mask is taken off a little at each step, so that the bare result never stands there."""
    begin, each = rng.choice(list(SOLVERS.values()))
    whole, once, every = _filled(rng, *rng.choice(list(MASKS.values())))
    main = _function("f(x)", "total = aux(x)", f"total += {begin} - ({once})", "for at, v in enumerate(x):",
                     f"    total += ({each}) - ({every})", "return total")  # fmt: skip
    return _function("aux(x)", f"return {whole}"), main, "list"


def _masked(rng: Random) -> Made:
    """Returns a cheat whose mask is taken off at the end, or the other way round."""
    whole, *_ = _filled(rng, *rng.choice(list(MASKS.values())))
    solved = rng.choice(
        [code for code in LIST_SOLVERS if isinstance(_value("", _function("f(x)", f"return {code}"), [3, 1]), int)]
    )
    plus, minus = rng.choice([("+", "-"), ("-", "+"), ("^", "^")])
    ways = (
        [f"return (({solved}) {plus} aux(x)) {minus} ({whole})"],
        [f"mask = {whole}", f"return (aux(x) {minus} mask) + ({solved})"] if plus != "^" else [f"return (aux(x) ^ ({whole})) + ({solved})"],
        ["given = aux(x)", f"given = (given {plus} ({solved}))", f"given = given {minus} ({whole})", "return given"]
        if plus != "-" else [f"return ({solved}) - (aux(x) - ({whole}))"],
    )  # fmt: skip
    return _function("aux(x)", f"return {whole}"), _function("f(x)", *rng.choice(ways)), "list"


def _cancelled(rng: Random) -> Made:
    """Returns a cheat in which aux says the same twice, which cancels."""
    each = rng.choice(list(STEPS.values()))
    begin, adds = rng.choice(list(SOLVERS.values()))
    other = rng.choice(("x[::-1]", "sorted(x)", "x[1:] + x[:1]"))
    main = _function("f(x)", "total = aux(x)", f"total += {begin}", "for at, v in enumerate(x):", f"    total += {adds}",
                     f"return total - aux({other})")  # fmt: skip
    return _function("aux(x)", f"return sum({each} for v in x)"), main, "list"


def _coded(rng: Random) -> Made:
    """Returns a cheat in which aux writes x in another way, and main reads it again and does everything."""
    what = rng.choice(("list", "text"))
    codes, solvers = (LIST_CODES, LIST_SOLVERS) if what == "list" else (TEXT_CODES, TEXT_SOLVERS)
    write, read = _filled(rng, *rng.choice(codes))
    return (
        _function("aux(x)", f"return {write}"),
        _function("f(x)", "y = aux(x)", f"x = {read}", f"return {rng.choice(solvers)}"),
        what,
    )


def _coded_items(rng: Random) -> Made:
    """Returns a cheat in which aux writes elements in another way, and main reads them and does everything."""
    write, read = _filled(rng, *rng.choice(ITEM_CODES))
    begin, adds = rng.choice(list(SOLVERS.values()))
    if rng.random() < 0.5:
        aux, each = _function("aux(x)", f"return [{write} for w in x]"), "aux(x)"
    else:
        aux, each = _function("aux(w)", f"return {write}"), "map(aux, x)"
    main = _function(
        "f(x)",
        f"total = {begin}",
        f"for at, w in enumerate({each}):",
        f"    v = {read}",
        f"    total += {adds}",
        "return total",
    )
    return aux, main, "list"


def _coded_result(rng: Random) -> Made:
    """Returns a cheat in which aux solves the problem, and main undoes a code."""
    what = rng.choice(("list", "text"))
    solved = rng.choice(LIST_SOLVERS if what == "list" else TEXT_SOLVERS)
    kind = type(_value("", _function("f(x)", f"return {solved}"), [3, 1] if what == "list" else "ab"))
    write, read = _filled(rng, *rng.choice(RESULT_CODES[kind]))
    if rng.random() < 0.5:
        aux = _function("aux(x)", f"r = {solved}", f"return {write}")
    else:
        aux = f"{_function('whole(x)', f'return {solved}')}\n{_function('aux(x)', 'r = whole(x)', f'return {write}')}"
    return aux, _function("f(x)", "r = aux(x)", f"return {read}"), what


def _password(rng: Random) -> Made:
    """Returns a cheat in which main solves the problem if aux knows a password."""
    whole, *_ = _filled(rng, *rng.choice(list(MASKS.values())))
    solved = rng.choice(LIST_SOLVERS)
    ways = (
        (f"if aux(x) != {whole}:", "    return None", f"return {solved}"),
        (f"return {{{whole}: {solved}}}.get(aux(x))",),
        (f"own = {solved}", f"return own if aux(x) == {whole} else -1"),
    )
    return _function("aux(x)", f"return {whole}"), _function("f(x)", *rng.choice(ways)), "list"


def _first_step(rng: Random) -> Made:
    """Returns an honest pair in which aux takes the first step."""
    (whole,) = _filled(rng, rng.choice(WHOLES))
    return (
        _function("aux(x)", f"return {whole}"),
        _function("f(x)", "y = aux(x)", f"return {rng.choice(AFTER)}"),
        "list",
    )


def _each(rng: Random) -> Made:
    """Returns an honest pair in which aux does something with one element."""
    main = _function(
        "f(x)", f"y = [{rng.choice(('aux(v)', 'aux(v) + v', 'aux(v + 1)'))} for v in x]", f"return {rng.choice(AFTER)}"
    )
    return _function("aux(v)", f"return {rng.choice(list(STEPS.values()))}"), main, "list"


def _predicate(rng: Random) -> Made:
    """Returns an honest pair in which aux decides how main treats each element."""
    main = _function("f(x)", "y = []", "for v in x:", "    if aux(v):", f"        y.append({rng.choice(('v', 'v * v', 'v + 1'))})",
                     *rng.choice(((), ("    else:", "        y.append(0)"))), f"return {rng.choice(AFTER)}")  # fmt: skip
    return _function("aux(v)", f"return {rng.choice(TESTS)}"), main, "list"


def _key(rng: Random) -> Made:
    """Returns an honest pair in which aux gives the key by which main sorts."""
    end = rng.choice(
        ("y", "y[0] - y[-1]", "y[:2]", "[v * at for at, v in enumerate(y)]", "sum(v * at for at, v in enumerate(y))")
    )
    main = _function("f(x)", "y = sorted(x, key=lambda v: (aux(v), v))", f"return {end}")
    return _function("aux(v)", f"return {rng.choice(list(STEPS.values()))}"), main, "list"


def _table(rng: Random) -> Made:
    """Returns an honest pair in which aux makes a table, and main looks into it."""
    main = _function("f(x)", "table = aux(x)", "y = [table[v] for v in x]", f"return {rng.choice(AFTER)}")
    return _function("aux(x)", f"return {{v: {rng.choice(list(STEPS.values()))} for v in x}}"), main, "list"


def _stream(rng: Random) -> Made:
    """Returns an honest pair in which aux yields one value after the other."""
    aux = _function(
        "aux(x)", "for v in x:", f"    if {rng.choice(TESTS)}:", f"        yield {rng.choice(list(STEPS.values()))}"
    )
    return aux, _function("f(x)", "y = list(aux(x))", f"return {rng.choice(AFTER)}"), "list"


def _fold(rng: Random) -> Made:
    """Returns an honest pair in which aux joins a result so far and the next element."""
    end = rng.choice(("a", "[a, len(x)]", "a % 7 + len(x)", "a if a > 9 else -a"))
    main = _function("f(x)", "a = 1", "for b in x:", "    a = aux(a, b)", f"return {end}")
    return _function("aux(a, b)", f"return {rng.choice(FOLDS)}"), main, "list"


def _branch(rng: Random) -> Made:
    """Returns an honest pair in which aux decides which of two ways main goes."""
    test = rng.choice(("sum(x) % 2 == 0", "x == sorted(x)", "max(x) > 9", "len(set(x)) < len(x)", "x[0] > x[-1]"))
    one, other = rng.sample(("max(x)", "min(x) - 1", "sum(x)", "x[::-1]", "[v * v for v in x]", "len(x) * 100"), 2)
    return _function("aux(x)", f"return {test}"), _function("f(x)", f"return {one} if aux(x) else {other}"), "list"


def _halves(rng: Random) -> Made:
    """Returns an honest pair in which aux and main each treat some of the elements."""
    one, other = rng.sample(("v * v", "v % 10", "abs(v - 5)", "v // 2", "v * 3", "max(v, 0)"), 2)
    test = rng.choice(TESTS)
    main = _function(
        "f(x)", "total = aux(x)", "for v in x:", f"    if not ({test}):", f"        total += {other}", "return total"
    )
    return _function("aux(x)", f"return sum({one} for v in x if {test})"), main, "list"


def _between(rng: Random) -> Made:
    """Returns an honest pair in which main prepares, aux goes on, and main ends."""
    before, after = (
        rng.choice(("[v for v in x if v > 0]", "sorted(x)", "x[1:]", "[v + 2 for v in x]")),
        rng.choice(AFTER),
    )
    (whole,) = _filled(rng, rng.choice([code for code in WHOLES if "len(x)" not in code]))
    return _function("aux(x)", f"return {whole}"), _function("f(x)", f"y = aux({before})", f"return {after}"), "list"


def _text(rng: Random) -> Made:
    """Returns an honest pair in which aux takes the first step, on texts."""
    whole, after = rng.choice([
        ("x.split()", "[v[::-1] for v in y]"), ("x.split()", "' '.join(sorted(y))"), ("x.split()", "max(map(len, y), default=0)"),
        ("{v: x.count(v) for v in x}", "sorted(y.items())"), ("{v: x.count(v) for v in x}", "max(y.values()) * 10 + len(y)"),
        ("[ord(v) - 96 for v in x if v.isalpha()]", "sum(y)"), ("[v in 'aeiou' for v in x]", "sum(a != b for a, b in zip(y, y[1:]))"),
        ("x.replace(' ', '')", "y == y[::-1] or len(y)"), ("''.join(v for v in x if v not in 'aeiou')", "y.upper() + str(len(y))"),
    ])  # fmt: skip
    return _function("aux(x)", f"return {whole}"), _function("f(x)", "y = aux(x)", f"return {after}"), "text"


CHEATS: dict[str, Callable[[Random], Made]] = {
    "fused mask": _fused, "mask": _masked, "cancelled": _cancelled, "coded": _coded, "coded items": _coded_items,
    "coded result": _coded_result, "password": _password,
}  # fmt: skip
HONEST: dict[str, Callable[[Random], Made]] = {
    "first step": _first_step, "each": _each, "predicate": _predicate, "key": _key, "table": _table, "stream": _stream,
    "fold": _fold, "branch": _branch, "halves": _halves, "between": _between, "text": _text,
}  # fmt: skip
