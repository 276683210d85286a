"""Test of the cooperation reward of `code_pair` on pairs that cheat and on pairs that really share the work.

Each file in `tests/environments/coding/pairs` holds problems and pairs of programs. The problems' cases are values as
`coterie_worlds.sandbox.encode` writes them (a dict is `{"dict": [[key, value], …]}`). Each pair has its correct label:
full, handed_on or none. `pairs.py` generates more. Writes docs/results/cooperation.md.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.pairs import generated
from coterie.bench import Say
from coterie.kernel.scene import JSON, Scene
from coterie_worlds.coding.code_pair import CodePair, Outcome
from coterie_worlds.coding.problems import Problem

PAGE = Path("docs/results/cooperation.md")
FOLDER = Path("tests/environments/coding/pairs")
PAID = ("none", "handed_on", "full")
"""Shares of the cooperation reward that a pair may be paid, from the least."""
WORDS = {"none": "none", "handed_on": "half", "full": "all"}
GENERATED = range(1000, 2000)
"""Seeds of the generated pairs of each side."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair of programs that was judged. deserves, paid: of PAID. solved: it passes every test of its problem."""

    name: str
    deserves: str
    paid: str
    solved: bool

    @property
    def wrong(self) -> bool:
        """True if a cheat is paid more than it deserves, or an honest pair less."""
        paid, deserves = PAID.index(self.paid), PAID.index(self.deserves)
        return paid < deserves if self.deserves == "full" else paid > deserves


class Direct:
    """A scene that calls functions at once, in this process."""

    async def call(self, function: Callable[..., JSON], *args: JSON) -> JSON:
        """Returns the function's result."""
        return function(*args)


def judged(file: Path) -> list[Judged]:
    """Returns every pair of a file, judged as `code_pair` pays it."""
    read = json.loads(file.read_text())
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda pair: _one(_problem(read["problems"][pair["problem"]]), pair), read["pairs"]))


def judged_generated(side: str, seeds: Iterable[int]) -> list[Judged]:
    """Returns generated pairs, judged as `code_pair` pays them. side: cheats or honest."""

    def one(seed: int) -> Judged:
        pair = generated(side, seed)
        return _one(Problem("", "train", name="f", cases=pair.cases), {**asdict(pair), "id": f"{pair.kind} {seed}"})

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(one, seeds))


def _problem(told: Mapping[str, Any]) -> Problem:
    cases = tuple((json.dumps(args), json.dumps(value)) for args, value in told["cases"])
    return Problem("", "train", text=told["text"], name=told["name"], cases=cases)


def _one(problem: Problem, pair: Mapping[str, Any]) -> Judged:
    written = {role: pair[role] for role in ("aux", "main")}
    outcome: Outcome = asyncio.run(CodePair.model_validate({}).judge(cast("Scene", Direct()), problem, written))
    paid = "none" if not outcome.uses else "handed_on" if outcome.hands_on else "full"
    return Judged(pair["id"], pair["deserves"], paid, outcome.verdict.solved)


def run(say: Say) -> dict[str, Any]:
    """Judges all pairs, writes the page, and returns the shares that are paid wrongly."""
    rates: dict[str, float] = {}
    lots: list[str] = []
    for file in sorted(FOLDER.glob("*.json")):
        judgements = judged(file)
        side, _, lot = file.stem.partition("_")
        lots.append(_row([side, lot], judgements, names=True))
        rates[file.stem] = _rate(judgements)
        say(f"{file.stem}: {rates[file.stem]:.1%} of {len(judgements)} paid wrongly")
    made: list[str] = []
    for side in ("cheats", "honest"):
        judgements = judged_generated(side, GENERATED)
        kinds: dict[str, list[Judged]] = {}
        for one in judgements:
            kinds.setdefault(one.name.rpartition(" ")[0], []).append(one)
        made += [_row([side, kind], found) for kind, found in {**kinds, "**all**": judgements}.items()]
        rates[f"generated_{side}"] = _rate(judgements)
        say(f"generated {side}: {_rate(judgements):.1%} of {len(judgements)} paid wrongly")
    PAGE.write_text("\n".join([*HEAD, *lots, *GENERATOR, *made, ""]))
    return rates


def _rate(judgements: Sequence[Judged]) -> float:
    return round(sum(one.wrong for one in judgements) / len(judgements), 4)


def _row(begin: Sequence[str], judgements: Sequence[Judged], *, names: bool = False) -> str:
    """Returns a table line about some pairs. names: lists the pairs that are paid wrongly."""
    wrong = [one for one in judgements if one.wrong]
    counts = Counter(one.deserves for one in judgements)
    deserve = ", ".join(f"{counts[worth]} {WORDS[worth]}" for worth in PAID if counts[worth])
    named = "; ".join(f"{one.name}: paid {WORDS[one.paid]}, deserves {WORDS[one.deserves]}" for one in wrong)
    share = f"{len(wrong)} ({len(wrong) / len(judgements):.1%})"
    cells = [*begin, str(len(judgements)), deserve, share, *([named] if names else [])]
    return f"| {' | '.join(cells)} |"


HEAD = [
    "# Results: errors of the cooperation reward of code_pair",
    "",
    "Written by `python -m benchmarks cooperation`. "
    "A pair is a program of aux and one of main that together pass all eight "
    "tests of their problem. A pair deserves none, half or all of the cooperation reward. A cheat is paid wrongly if "
    "it gets more than it deserves, an honest pair if it gets less than all.",
    "",
    "## Pairs written by hand",
    "",
    "Written in lots by authors who did not know the reward function, with their own labels. Each lot was judged once "
    "before anybody looked at it, and the reward was corrected with it in view later. The first reward function, which "
    "counted calls, paid 19 of 19 cheats wrongly. Paid wrongly when a later lot was first judged: 4 of 44 (lot 2), 3 "
    "of 48 (lot 3), 6 of 60 (lot 4) and 3 of 84 (lot 5) of the cheats; 5 of 44 (lot 2) and 0 of 48 (lot 3) of the "
    "honest pairs. So the rates below do not predict the rates on new pairs.",
    "",
    "| | lot | pairs | deserved share of the reward | paid wrongly | which pairs |",
    "|---|---|---|---|---|---|",
]
GENERATOR = [
    "",
    "## Generated pairs",
    "",
    "Made by `benchmarks/pairs.py`, seeds 1000 to 1999 of each side. "
    "Nobody had looked at these pairs when the reward was "
    "last changed, but at 462 others of each side. A cheat solves the problem alone, behind a mask that aux puts on "
    "and main takes off (*fused*: a little in each step of a loop; *cancelled*: by asking aux twice), behind a code in "
    "which aux writes main's arguments, or behind a password; a *coded result* is solved by aux, and main undoes a "
    "code. An honest pair shares a chain of steps in one of eleven ways; pairs are left out whose results an aux that "
    "gives back its argument would not change.",
    "",
    "| | kind | pairs | deserved share of the reward | paid wrongly |",
    "|---|---|---|---|---|",
]
