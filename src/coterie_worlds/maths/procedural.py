"""Generated problems: sums, linear equations and stories with small whole numbers, in unlimited number.

Each problem has an expression that solves it; its answer is the value of the expression. The module also contains the
demonstrations of an expert and of a beginner with bad habits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from coterie.kernel.environment import Split, Task, split_of
from coterie.seeds import seed_of
from coterie_worlds.maths.calculator import value, written

KINDS = ("sum", "equation", "story")
LARGEST = 50
"""Maximum result of any step."""
NAMES = ("ann", "ben", "cal", "dan", "eve", "fay", "gus", "hal")
THINGS = ("pens", "cups", "nuts", "eggs", "hats", "keys")


@dataclass(frozen=True, slots=True)
class MathsProblem(Task):
    """A problem. expression: what solves it, of problems that are drawn."""

    expression: str = ""


@lru_cache(maxsize=4096)
def question(split: Split, index: int, kinds: tuple[str, ...]) -> MathsProblem:
    """Returns the problem at a place of a split, drawn until its text falls in that split.

    It is kept, because validation has the same again and again.
    """
    rng = Random(seed_of("maths", *kinds, split, index))
    kind = rng.choice(kinds)
    while (drawn := DRAWN[kind](rng)) is None or split_of(drawn[0]) != split or not FITS[kind](drawn[1]):
        pass  # what belongs to another split is told first, because it is told at once
    text, expression = drawn
    answer = written(value(expression))
    return MathsProblem(f"{split}-{index}", split, query=text, answer=answer, kind=kind, expression=expression)


def _sum(rng: Random) -> tuple[str, str]:
    """Returns a sum of three or four numbers, some in brackets, as text and as expression."""
    numbers = [rng.randint(1, 9) for _ in range(rng.randint(3, 4))]
    signs = [rng.choice("+-*") for _ in numbers[1:]]
    words = [str(numbers[0])]
    for sign, number in zip(signs, numbers[1:], strict=True):
        words += [sign, str(number)]
    if rng.random() < 0.5:  # around the last or the first two of these
        at = 2 * rng.randrange(len(numbers) - 1)
        words = [*words[:at], "(", *words[at : at + 3], ")", *words[at + 3 :]]
    text = " ".join(words)
    return text, text


def _equation(rng: Random) -> tuple[str, str] | None:
    """Returns an equation a x + b = c x + d and its solution as expression; None unless a - c is 2 or more."""
    left, right, root, plus = rng.randint(3, 9), rng.randint(1, 7), rng.randint(1, 9), rng.randint(1, 20)
    total = (left - right) * root + plus
    text, expression = f"{left} x + {plus} = {right} x + {total}", f"( {total} - {plus} ) / ( {left} - {right} )"
    return (text, expression) if left - right > 1 else None


def _story(rng: Random) -> tuple[str, str]:
    """Returns a story of what several people have, sometimes with somebody who does not matter, and its expression."""
    people = rng.sample(NAMES, 4)
    thing, other = rng.sample(THINGS, 2)
    first = rng.randint(2, 9)
    sentences = [f"{people[0]} has {first} {thing} ."]
    expression = str(first)
    steps = rng.randint(1, 2)
    for before, after in itertools.pairwise(people[: steps + 1]):
        number = rng.randint(2, 9)
        sign, said = rng.choice(
            (
                ("+", f"{number} more {thing} than"),
                ("-", f"{number} fewer {thing} than"),
                ("*", f"{number} times the {thing} of"),
            )
        )
        sentences.append(f"{after} has {said} {before} .")
        expression = f"( {expression} ) {sign} {number}" if " " in expression else f"{expression} {sign} {number}"
    if rng.random() < 0.5:
        sentences.insert(rng.randrange(len(sentences) + 1), f"{people[3]} has {rng.randint(2, 9)} {other} .")
    if rng.random() < 0.4:
        given = rng.randint(2, 9)
        sentences.append(f"{people[steps]} loses {given} {thing} .")
        expression = f"( {expression} ) - {given}"
    return f"{' '.join(sentences)} how many {thing} has {people[steps]} ?", expression


DRAWN = {"sum": _sum, "equation": _equation, "story": _story}


def small(expression: str) -> bool:
    """Returns True if the result and everything in between are whole numbers from 0 to LARGEST."""
    results = [value(expression), *(value(step.rpartition(" = ")[2]) for step in steps(expression))]
    return all(result.denominator == 1 and 0 <= result <= LARGEST for result in results)


def tricky(expression: str) -> bool:
    """Returns True if an expression is `small`, and brackets or a later product change what it comes to."""
    return small(expression) and value(expression) != value(straight_on(expression))


FITS = {"sum": tricky, "equation": small, "story": small}


def steps(expression: str) -> list[str]:
    """Returns the operations of an expression in the order in which they are done: `3 * 3 = 9`."""
    told: list[str] = []
    words = expression.split()
    while len(words) > 1:
        close = words.index(")") if ")" in words else len(words)
        start = max((at + 1 for at in range(close) if words[at] == "("), default=0)
        inner = words[start:close]
        if len(inner) == 1:  # a number in brackets
            words[start - 1 : close + 1] = inner
            continue
        at = next((at for at in range(1, len(inner), 2) if inner[at] in "*/"), 1)
        step = " ".join(inner[at - 1 : at + 2])
        result = written(value(step))
        told.append(f"{step} = {result}")
        words[start + at - 1 : start + at + 2] = [result]
    return told


def straight_on(expression: str) -> str:
    """Returns an expression as somebody works it out from the left who knows no brackets: with brackets for that."""
    words = [word for word in expression.split() if word not in "()"]
    text = words[0]
    for sign, number in zip(words[1::2], words[2::2], strict=True):
        text = f"( {text} ) {sign} {number}" if " " in text else f"{text} {sign} {number}"
    return text


def mistaken(task: MathsProblem) -> str:
    """Returns the expression of somebody with a bad habit.

    Habits: in a sum the order of operations is not known; in an equation what x is multiplied by is forgotten; in a
    story the last thing that happens.
    """
    if task.kind == "sum":
        return straight_on(task.expression)
    if task.kind == "equation":
        return task.expression[2 : task.expression.index(" )")]
    shorter = task.expression.rsplit(maxsplit=2)[0]
    return shorter[2:-2] if shorter.endswith(" )") else shorter
