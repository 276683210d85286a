"""A map of when a team pays: two roles against one agent, over what one role knows and how much an answer joins.

The third dial is the model that all begin with: two sizes, each after few, some and many steps of demonstrations.
Writes docs/results/map.md and its picture from docs/results/data/map.jsonl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.intervals import over_seeds
from coterie.bench.rows import FIVE, Row, Table
from coterie.config.settings import SFTConfig
from coterie.environments.relay import Relay, knows_enough
from coterie.run.sft import sft

PAGE = Path("docs/results/map.md")
PICTURE = Path("docs/results/map.svg")
FOLDER = Path("runs/bench-map")
PLACES, SHARES, HOPS = 8, (4, 5, 6, 7, 8), (1, 2, 3, 4)
TASKS = 4000
"""Test tasks of a run: 200 for each of the 20 places on the map."""
BUDGET = 100_000
"""Sampled tokens that each run may train on."""


@dataclass(frozen=True, slots=True)
class Begins:
    """The model that a team or an agent begins with."""

    title: str
    steps: int
    hidden_size: int
    layers: int

    def make(self, folder: Path, say: Say) -> None:
        """Trains it on demonstrations, if it is not there."""
        if not folder.exists():
            say(f"making a starter of {self.title}, {self.steps} steps")
            config = SFTConfig(
                steps=self.steps, hidden_size=self.hidden_size, layers=self.layers, vocabulary=300, seed=0
            )
            sft(Relay(), folder, config)


STARTERS = {
    "small_200": Begins("0.2 million parameters, 200 steps of demonstrations", 200, 64, 3),
    "small_350": Begins("0.2 million parameters, 350 steps of demonstrations", 350, 64, 3),
    "small_1500": Begins("0.2 million parameters, 1,500 steps of demonstrations", 1500, 64, 3),
    "large_120": Begins("0.9 million parameters, 120 steps of demonstrations", 120, 128, 4),
    "large_200": Begins("0.9 million parameters, 200 steps of demonstrations", 200, 128, 4),
    "large_800": Begins("0.9 million parameters, 800 steps of demonstrations", 800, 128, 4),
}
PLAYERS: Mapping[str, Mapping[str, Any]] = {
    "team": {},
    "part": {"solo": True, "max_turns": 1},
    "whole": {"solo": True, "max_turns": 1, "shares": [PLACES]},
}
"""A team; one agent that sees what a role sees; one agent that sees everything. One agent learns nothing in a turn that
it did not know before, so it has one."""
NAMES = {"team": "team of two", "part": "one agent with one role's part", "whole": "one agent with everything"}


def _row(starter: str, player: str) -> Row:
    team = player == "team"
    return Row(
        f"{NAMES[player]}, {STARTERS[starter].title}",
        {
            "environment": {"name": "relay", **PLAYERS[player]},
            "algorithm": {"name": "at_grpo", "horizon": "point", "commit": "random"},
            "policies": {"team": {"model": str(FOLDER / "starters" / starter)}},
            "optimizer": {"lr": 1e-3},
            "train": {
                "steps": 1000,
                "max_sampled_tokens": BUDGET,
                "tasks_per_step": 32 if team else 100,
                "eval_every": 20,
                "eval_tasks": 400,
                "mute_every": 0,
            },
            "eval": {"tasks": TASKS if player != "whole" else TASKS // len(SHARES)},
        },
        seeds=FIVE,
    )


TABLE = Table(
    FOLDER,
    "coterie.bench.map",
    {f"{starter}_{player}": _row(starter, player) for starter in STARTERS for player in PLAYERS},
    Path("docs/results/data/map.jsonl"),
)


def run(say: Say) -> dict[str, Any]:
    """Makes the starters and runs what is missing, writes the page and the picture, and returns success by row."""
    for name, starter in STARTERS.items():
        starter.make(FOLDER / "starters" / name, say)
    return TABLE.publish(PAGE, page, say)


def cell(share: int, hops: int) -> str:
    """How evaluations name a place on the map."""
    return f"{share} of {PLACES} known, {hops} hops"


def successes(starter: str, player: str, share: int, hops: int) -> list[float]:
    """A player's success at a place on the map, by seed."""
    there = cell(PLACES if player == "whole" else share, hops)
    return [figures["by_kind"][there] for figures in TABLE.found(f"{starter}_{player}")]


def gain(starter: str, rival: str, share: int, hops: int) -> tuple[float, float, float]:
    """What the team achieves more than one agent: mean over seeds and its 95 % interval."""
    pairs = zip(successes(starter, "team", share, hops), successes(starter, rival, share, hops), strict=True)
    return over_seeds([team - alone for team, alone in pairs])


def page() -> Sequence[str]:
    """The results page, from the figures of all finished runs."""
    lines = ["# Results: a map of when a team pays", ""]
    for starter, begins in STARTERS.items():
        for rival in ("part", "whole"):
            if TABLE.found(f"{starter}_{rival}"):
                lines += ["", f"## {begins.title}: team minus {NAMES[rival]}", "", *_grid(starter, rival)]
    return [*lines, "", *TABLE.lines(), ""]


def _grid(starter: str, rival: str) -> list[str]:
    lines = [f"| | {' | '.join(f'{share} of {PLACES} known' for share in SHARES)} |", "|---|" + "---|" * len(SHARES)]
    for hops in HOPS:
        cells: list[str] = []
        for share in SHARES:
            mean, low, high = gain(starter, rival, share, hops)
            team, alone = (fmean(successes(starter, player, share, hops)) for player in ("team", rival))
            cells.append(
                f"{100 * mean:+.0f} [{100 * low:+.0f}, {100 * high:+.0f}] ({team:.2f} to {alone:.2f}, "
                f"knows {knows_enough(PLACES, share, hops):.2f})"
            )
        lines.append(f"| {hops} hops | {' | '.join(cells)} |")
    return lines
