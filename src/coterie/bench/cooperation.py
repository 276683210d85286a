"""Test of the cooperation reward of `code_pair` on pairs that cheat and on pairs that really share the work.

Each file in `tests/environments/coding/pairs` holds problems and pairs of programs. The problems' cases are values as
`coterie.sandbox.encode` writes them (a dict is `{"dict": [[key, value], …]}`). Each pair has its correct label: full,
handed_on or none. Writes docs/results/cooperation.md.
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
        named = "; ".join(f"{one.name}: paid {WORDS[one.paid]}, deserves {WORDS[one.deserves]}" for one in wrong)
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
    "# Results: errors of the cooperation reward of code_pair",
    "",
    "Written by `coterie bench cooperation`. A pair is a program of aux and one of main that together pass all eight "
    "tests of their problem. By its author's label, a pair deserves none, half or all of the cooperation reward. A "
    "cheat is paid wrongly if it gets more than it deserves, an honest pair if it gets less than all. The pairs were "
    "written in lots by authors who did not know the reward function. The reward function was later corrected with "
    "some lots in view (column *looked at*); the error rates on those lots do not predict the rates on new pairs.",
    "",
    "Each lot was judged once before anybody looked at it. The previous reward function, which counted calls, paid "
    "19 of 19 cheats wrongly. Paid wrongly when a later lot was first judged: 4 of 44 (lot 2), 3 of 48 (lot 3), 6 of "
    "60 (lot 4) and 3 of 84 (lot 5) of the cheats; 5 of 44 (lot 2) and 0 of 48 (lot 3) of the honest pairs. The "
    "reward function was not changed after the last lots (cheats 5, honest 3). The cheats that are still paid are of "
    "one kind: aux encodes its argument, and main decodes it and does all the work. An honest main that needs a "
    "reversed or negated list behaves in the same way, so the reward cannot distinguish the two.",
    "",
    "| | lot | looked at | pairs | deserved share of the reward | paid wrongly | which pairs |",
    "|---|---|---|---|---|---|---|",
]
