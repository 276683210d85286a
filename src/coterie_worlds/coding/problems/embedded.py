"""Embedded problems: small functions of lists, strings and numbers, as many as are wanted.

A problem is a chain of two or three named steps, such as `keep even, double, sum`. The chain decides the
split, so a test chain is never trained on. The hidden tests are random inputs and edge cases; the steps
themselves compute their values. Nearly right programs (mutants) leave out or exchange a step, and testers
should detect them.

The demonstrator is imperfect on purpose: in a chain of three it forgets the second step with probability
`naive`. A starter that is trained on it has this habit, and reinforcement learning can remove it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Literal

from coterie.kernel.environment import Split, split_of
from coterie.seeds import seed_of
from coterie_worlds.coding.problems import Problem
from coterie_worlds.sandbox import encode

Kind = Literal["list", "string", "number"]
CASES = 8
"""Number of hidden tests of a problem."""
MUTANTS = 4
"""Maximum number of programs that nearly solve a problem."""
NAME = "f"
LENGTHS = (2, 3)
"""Possible numbers of steps of a chain."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain. code: the step in Python, of `x`. each: the same of one element `v`, where it works so.

    test: the element-wise condition of a step that keeps elements. last: what comes out is not of the kind
    that went in, so no step can follow.
    """

    words: str
    code: str
    each: str = ""
    test: str = ""
    last: bool = False


def _map(words: str, each: str) -> Step:
    return Step(words, f"[{each} for v in x]", each=each)


def _keep(words: str, test: str) -> Step:
    return Step(words, f"[v for v in x if {test}]", test=test)


STEPS: dict[Kind, tuple[Step, ...]] = {
    "list": (
        _map("add one", "v + 1"),
        _map("double", "v * 2"),
        _map("square", "v * v"),
        _map("negate", "-v"),
        _map("halve", "v // 2"),
        _map("last digit", "v % 10"),
        _keep("keep even", "v % 2 == 0"),
        _keep("keep odd", "v % 2 == 1"),
        _keep("keep big", "v > 4"),
        _keep("keep small", "v < 5"),
        Step("reverse", "x[::-1]"),
        Step("sort", "sorted(x)"),
        Step("drop first", "x[1:]"),
        Step("drop last", "x[:-1]"),
        Step("unique", "list(dict.fromkeys(x))"),
        Step("sum", "sum(x)", last=True),
        Step("count", "len(x)", last=True),
        Step("largest", "max(x, default=0)", last=True),
        Step("smallest", "min(x, default=0)", last=True),
    ),
    "string": (
        Step("reverse", "x[::-1]"),
        Step("drop first", "x[1:]"),
        Step("drop last", "x[:-1]"),
        Step("twice", "x + x"),
        Step("upper", "x.upper()"),
        Step("sort", '"".join(sorted(x))'),
        Step("keep vowels", '"".join(v for v in x if v in "aeiou")', test='v in "aeiou"'),
        Step("drop vowels", '"".join(v for v in x if v not in "aeiou")', test='v not in "aeiou"'),
        Step("count", "len(x)", last=True),
        Step("first", "x[:1]", last=True),
    ),
    "number": (
        Step("add one", "x + 1"),
        Step("double", "x * 2"),
        Step("square", "x * x"),
        Step("negate", "-x"),
        Step("halve", "x // 2"),
        Step("last digit", "x % 10"),
        Step("absolute", "abs(x)"),
        Step("is even", "x % 2 == 0", last=True),
    ),
}


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of steps: what a problem asks for."""

    kind: Kind
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """The chain as roles are told it."""
        return f"{NAME}(x) of a {self.kind}: {', '.join(step.words for step in self.steps)}"

    @property
    def split(self) -> Split:
        """Split to which the chain belongs."""
        return split_of((self.kind, *(step.words for step in self.steps)))

    def program(self, name: str = NAME) -> str:
        """Returns a function that does the chain, a line a step."""
        *first, last = [step.code for step in self.steps]
        return "\n".join([f"def {name}(x):", *(f"    x = {code}" for code in first), f"    return {last}"])

    def value(self, given: Any) -> Any:
        """Returns what the chain makes of an input."""
        for step in self.steps:
            given = _compiled(step.code)(given)
        return given


@lru_cache(maxsize=64)
def _compiled(code: str) -> Callable[[Any], Any]:
    return eval(f"lambda x: {code}")  # noqa: S307  (the table's own text)


@lru_cache(maxsize=4)
def chains(split: Split) -> tuple[Chain, ...]:
    """Returns every chain of a split whose steps differ from their neighbours, in an order that mixes them."""
    made: list[Chain] = []
    for kind, steps in STEPS.items():
        for length in LENGTHS:
            for chosen in itertools.product(steps, repeat=length):
                if any(step.last for step in chosen[:-1]) or any(a is b for a, b in itertools.pairwise(chosen)):
                    continue
                chain = Chain(kind, chosen)
                if chain.split == split:
                    made.append(chain)
    Random(seed_of("chains", split)).shuffle(made)
    return tuple(made)


def chain_of(split: Split, index: int) -> Chain:
    """Returns the chain at a place of a split: each held-out chain once; for training any, kind and length first."""
    if split != "train":
        return chains(split)[index]
    rng = Random(seed_of("code", split, index))
    return rng.choice(_of(rng.choice(("list", "list", "string", "number")), rng.choice((2, 3, 3))))


@lru_cache(maxsize=32)
def _of(kind: Kind, length: int) -> tuple[Chain, ...]:
    return tuple(chain for chain in chains("train") if chain.kind == kind and len(chain.steps) == length)


@lru_cache(maxsize=4096)
def problem(split: Split, index: int) -> Problem:
    """Returns the problem at a place of a split."""
    chain = chain_of(split, index)
    rng = Random(seed_of("cases", split, index))
    inputs = [{"list": [], "string": "", "number": 0}[chain.kind]]
    while len(inputs) < CASES:
        drawn = an_input(chain.kind, rng, 6)
        if drawn not in inputs:
            inputs.append(drawn)
    return Problem(
        id=f"{split}-{index}",
        split=split,
        query=chain.text,
        text=chain.text,
        name=NAME,
        cases=tuple((json.dumps([encode(given)]), json.dumps(encode(chain.value(given)))) for given in inputs),
        solution=chain.program(),
        mutants=tuple(other.program() for other in near(chain, rng)),
    )


def an_input(kind: Kind, rng: Random, longest: int) -> Any:
    """Returns a random input, of at most so many elements."""
    if kind == "number":
        return rng.randint(-9, 30)
    items = [rng.randint(0, 9) for _ in range(rng.randint(1, longest))]
    return items if kind == "list" else "".join("aeiourstlnbc"[item + item % 2] for item in items)


def near(chain: Chain, rng: Random) -> list[Chain]:
    """Returns chains one step away that differ from a chain on some input: a step left out, exchanged, or misplaced."""
    steps = list(chain.steps)
    others: list[list[Step]] = [steps[:at] + steps[at + 1 :] for at in range(len(steps))]
    others += [[*steps[:at], step, *steps[at + 1 :]] for at in range(len(steps)) for step in STEPS[chain.kind]]
    rng.shuffle(others)
    tried = [an_input(chain.kind, rng, 6) for _ in range(20)]
    wanted = [chain.value(given) for given in tried]
    neighbours: list[Chain] = []
    for other in others:
        if len(neighbours) == MUTANTS:
            break
        if not other or any(step.last for step in other[:-1]):
            continue
        made = Chain(chain.kind, tuple(other))
        if [made.value(given) for given in tried] != wanted:
            neighbours.append(made)
    return neighbours


def forgetful(chain: Chain) -> Chain:
    """Returns the chain as the naive demonstrator has it: of three steps, the second is forgotten."""
    if len(chain.steps) < 3:
        return chain
    return Chain(chain.kind, (chain.steps[0], chain.steps[2]))


def remembered(task: Problem, naive: float, rng: Random) -> Chain:
    """Returns a task's chain as the demonstrator has it in mind: with probability `naive`, forgetful."""
    chain = chain_at(task)
    return forgetful(chain) if rng.random() < naive else chain


def chain_at(task: Problem) -> Chain:
    """Returns the chain of an embedded problem.

    Raises:
        NotImplementedError: it is one of somebody's own.
    """
    if not task.id.startswith(f"{task.split}-"):
        raise NotImplementedError("problems of one's own come without demonstrations")
    return chain_of(task.split, int(task.id.rpartition("-")[2]))
