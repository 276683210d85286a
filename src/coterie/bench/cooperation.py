"""Whom the cooperation reward of `code_pair` pays: cheats, and pairs that really share the work.

Each file of `tests/environments/coding/pairs` holds problems, whose cases are values as `coterie.sandbox.encode` writes
them (a table is `{"dict": [[key, value], …]}`), and pairs with what they deserve: full, handed_on or none. Writes
docs/results/cooperation.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from coterie.bench import Say
from coterie.environments.coding.code_pair import CodePair, Outcome
from coterie.environments.coding.problems import Problem
from coterie.kernel.scene import JSON, Scene

PAGE = Path("docs/results/cooperation.md")
FOLDER = Path("tests/environments/coding/pairs")
PAID = ("none", "handed_on", "full")
"""What a pair may be paid, from the least."""
WORDS = {"none": "none", "handed_on": "half", "full": "all"}
UNSEEN = ("cheats_5", "honest_3")
"""Lots that nobody had looked at when the reward was last mended."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One pair. deserves, paid: of PAID. solved: it passes every test of its problem."""

    name: str
    deserves: str
    paid: str
    solved: bool

    @property
    def wrong(self) -> bool:
        """Whether a cheat is paid more than it deserves, or an honest pair less."""
        paid, deserves = PAID.index(self.paid), PAID.index(self.deserves)
        return paid < deserves if self.deserves == "full" else paid > deserves


class Direct:
    """A scene that calls at once."""

    async def call(self, function: Callable[..., JSON], *args: JSON) -> JSON:
        """What the function returns."""
        return function(*args)


def judged(file: Path) -> list[Judged]:
    """Every pair of a file, as `code_pair` pays it."""
    read = json.loads(file.read_text())
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda pair: _one(read["problems"][pair["problem"]], pair), read["pairs"]))


def _one(problem: Mapping[str, Any], pair: Mapping[str, str]) -> Judged:
    cases = tuple((json.dumps(args), json.dumps(value)) for args, value in problem["cases"])
    task = Problem(pair["id"], "train", text=problem["text"], name=problem["name"], cases=cases)
    written = {role: pair[role] for role in ("aux", "main")}
    outcome: Outcome = asyncio.run(CodePair.model_validate({}).judge(cast("Scene", Direct()), task, written))
    paid = "none" if not outcome.uses else "handed_on" if outcome.hands_on else "full"
    return Judged(pair["id"], pair["deserves"], paid, outcome.verdict.solved)


def run(say: Say) -> dict[str, Any]:
    """Judges all pairs, writes the page, and returns error rates."""
    rates: dict[str, float] = {}
    lines: list[str] = []
    for file in sorted(FOLDER.glob("*.json")):
        judgements = judged(file)
        wrong = [judged for judged in judgements if judged.wrong]
        rates[file.stem] = round(len(wrong) / len(judgements), 4)
        named = "; ".join(f"{judged.name}: {judged.paid} for {judged.deserves}" for judged in wrong)
        counts = {worth: sum(pair.deserves == worth for pair in judgements) for worth in PAID}
        deserve = ", ".join(f"{count} {WORDS[worth]}" for worth, count in counts.items() if count)
        share = f"{len(wrong)} ({len(wrong) / len(judgements):.1%})"
        kind, _, lot = file.stem.partition("_")
        seen = "no" if file.stem in UNSEEN else "yes"
        lines.append(f"| {' | '.join((kind, lot, seen, str(len(judgements)), deserve, share, named))} |")
        say(f"{file.stem}: {len(wrong)} of {len(judgements)} paid wrongly")
    PAGE.write_text("\n".join([*HEAD, *lines, ""]))
    return rates


HEAD = [
    "# Whom the cooperation reward of code_pair pays",
    "",
    "Written by `coterie bench cooperation`. Every pair passes all eight tests of its problem, and deserves none, half "
    "or all of the cooperation reward. A cheat is paid wrongly when it gets more than it deserves, an honest pair "
    "when it gets less than all. Pairs were written in lots by authors who did not know the reward. It was mended "
    "with those lots in view whose column says so: their shares are not what new pairs would show.",
    "",
    "Each lot was judged before anybody looked at it. Cheats paid wrongly then: 19 of 19 by the reward before this "
    "one, 4 of 44 (lot 2), 3 of 48 (lot 3), 6 of 60 (lot 4), 3 of 84 (lot 5); honest pairs: 5 of 44 (lot 2), 0 of 48 "
    "(lot 3). Nothing was mended after the last lots. The cheats that are paid still are of one kind: aux turns its "
    "argument into other words, main turns them back and does the work; a main that needs a reversed or negated list "
    "does the same, and what either is for cannot be told from what they do.",
    "",
    "| | lot | looked at | pairs | deserve | paid wrongly | which |",
    "|---|---|---|---|---|---|---|",
]
