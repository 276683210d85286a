"""A map of when a team pays: two roles against one agent, over what one role knows and how much an answer joins.

The third dial is the model that all begin with: two sizes, each after few, some and many steps of demonstrations.
Writes docs/results/map.md and its pictures from docs/results/data/map.jsonl.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import claims, svg
from benchmarks.claims import Claim, Comparison
from benchmarks.intervals import over_seeds
from benchmarks.rows import FIVE, Row, Table, interval
from benchmarks.svg import text
from coterie.bench import Say
from coterie.config.settings import SFTConfig
from coterie.run.sft import sft
from coterie_worlds.relay import Relay

PAGE = Path("docs/results/map.md")
PICTURES = {"part": Path("docs/results/map_part.svg"), "whole": Path("docs/results/map_whole.svg")}
FOLDER = Path("runs/bench-map")
PLACES, SHARES, HOPS = 8, (4, 5, 6, 7, 8), (1, 2, 3, 4)
TASKS = 4000
"""Number of test tasks of a run: about 200 for each of the 20 places on the map."""
BUDGET = 100_000
"""Number of sampled tokens that each run may train on."""


@dataclass(frozen=True, slots=True)
class Begins:
    """A model that a team or an agent begins with, and how it is made."""

    title: str
    steps: int
    hidden_size: int
    layers: int

    @property
    def short(self) -> str:
        """Size and training of the model, in few words."""
        return f"{self.title.partition(' ')[0]} M, {self.steps:,} steps"

    def make(self, folder: Path, say: Say) -> None:
        """Trains the model on demonstrations, unless it is there, made in this way."""
        made_of = folder / "made_of.txt"  # written when it is done
        if not made_of.exists() or made_of.read_text() != repr(self):
            say(f"making a starter: {self.title}")
            shutil.rmtree(folder, ignore_errors=True)
            config = SFTConfig(
                steps=self.steps, hidden_size=self.hidden_size, layers=self.layers, vocabulary=300, seed=0
            )
            sft(Relay(), folder, config)
            made_of.write_text(repr(self))


STARTERS = {
    "small_200": Begins("0.2 million parameters, 200 steps of demonstrations", 200, 64, 3),
    "small_350": Begins("0.2 million parameters, 350 steps of demonstrations", 350, 64, 3),
    "small_1500": Begins("0.2 million parameters, 1,500 steps of demonstrations", 1500, 64, 3),
    "large_200": Begins("0.9 million parameters, 200 steps of demonstrations", 200, 128, 4),
    "large_350": Begins("0.9 million parameters, 350 steps of demonstrations", 350, 128, 4),
    "large_800": Begins("0.9 million parameters, 800 steps of demonstrations", 800, 128, 4),
}
PLAYERS: Mapping[str, Mapping[str, Any]] = {
    "team": {},
    "part": {"solo": True, "max_turns": 1},
    "whole": {"solo": True, "max_turns": 1, "shares": [PLACES]},
}
"""Settings of a team, of one agent that sees what a role sees, and of one agent that sees everything.
One agent learns nothing in a turn that it did not know before, so it has one."""
RIVALS = ("part", "whole")
WIDE, TALL, LEFT, GAP = 44, 28, 40, 40
"""Pixels of the picture: width and height of a field, the margin to the left, the gap between panels."""
NAMES = {"team": "team of two", "part": "one agent with one role's part", "whole": "one agent with everything"}
TREE = {"name": "at_grpo", "horizon": "point", "commit": "random"}
OTHERWISE: Mapping[str, tuple[str, Mapping[str, Any], int]] = {
    "team_turn": ("team of two, horizon turn", TREE | {"horizon": "turn"}, 32),
    "team_episodes": ("team of two, GRPO over episodes", {"name": "mas_grpo"}, 50),
}
"""The team with other methods, which may find what the usual one does not: title, algorithm, tasks of a step."""
TRAINED = {player: (name, TREE, 32 if player == "team" else 100) for player, name in NAMES.items()} | OTHERWISE
WEAK = ("small_200", "small_350", "large_200", "large_350")
"""Starters from which a team hardly wins."""


def _row(starter: str, player: str) -> Row:
    title, algorithm, tasks = TRAINED[player]
    return Row(
        f"{title}, {STARTERS[starter].title}",
        {
            "environment": {"name": "relay", **PLAYERS.get(player, {})},
            "algorithm": dict(algorithm),
            "policies": {"team": {"model": str(FOLDER / "starters" / starter)}},
            "optimizer": {"lr": 1e-3},
            "train": {
                "steps": 1000,
                "max_sampled_tokens": BUDGET,
                "tasks_per_step": tasks,
                "eval_every": 20,
                "eval_tasks": 400,
                "mute_every": 0,
            },
            "eval": {"tasks": TASKS},
        },
        overrides=("environment.seed={seed}",),
        seeds=FIVE,
        of=repr(STARTERS[starter]),
    )


def _starters(say: Say, rows: Collection[str]) -> None:
    for name, starter in STARTERS.items():
        if any(row.startswith(f"{name}_") for row in rows):
            starter.make(FOLDER / "starters" / name, say)


TABLE = Table(
    FOLDER,
    "benchmarks.map",
    {f"{starter}_{player}": _row(starter, player) for starter in STARTERS for player in NAMES}
    | {f"{starter}_{player}": _row(starter, player) for starter in WEAK for player in OTHERWISE},
    Path("docs/results/data/map.jsonl"),
    _starters,
)


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the page and the pictures, and returns success by row."""
    published = TABLE.publish(PAGE, page, say)
    for rival, file in PICTURES.items():
        file.write_text(picture(rival))
    claims.run(say)
    return published


def cell(share: int, hops: int) -> str:
    """Returns the name of a place on the map, as in evaluations."""
    return f"{share} of {PLACES} known, {hops} hops"


def successes(starter: str, player: str, share: int, hops: int) -> list[float]:
    """Returns a player's success at a place on the map, by seed."""
    there = cell(PLACES if player == "whole" else share, hops)
    return [figures["by_kind"][there] for figures in TABLE.found(f"{starter}_{player}")]


def gain(starter: str, rival: str, share: int, hops: int) -> tuple[float, float, float]:
    """Returns the team's success minus one agent's at a place: mean over seeds and its 95 % interval."""
    pairs = zip(successes(starter, "team", share, hops), successes(starter, rival, share, hops), strict=False)
    return over_seeds([team - alone for team, alone in pairs])


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    hours, beyond = TABLE.spent()
    lines = [
        "# Results: a map of when a team pays",
        "",
        claims.against(CLAIMS),
        "",
        "The task is [relay](../environments.md#relay): where do so many hops lead from a place, if each of two roles "
        "sees some of the arrows and both together see all? The map has three dials. From left to right, **one role "
        f"knows** more: {SHARES[0]} to {SHARES[-1]} of {PLACES} arrows. Downwards, the parts are **more tightly "
        f"coupled**: an answer joins {HOPS[0]} to {HOPS[-1]} arrows. From panel to panel, **one agent can become "
        "better**: all players of a panel begin with one model, which is small or large and has seen few, some or many "
        "demonstrations, of which six in ten follow one arrow and then guess. With more demonstrations, what it "
        "answers at first is not always right more often, but training makes more of it.",
        "",
        *(f"![team of two minus {NAMES[rival]}]({file.name})" for rival, file in PICTURES.items() if hours),
        "",
        *_answer(),
        "",
        "A team is compared with two single agents. One has *one role's part*: it sees as many arrows as one role. The "
        "other has *everything*. One agent would learn nothing in a second turn that it did not know in the first, so "
        "it has one turn. A team has as many turns as its task asks for. A field says what the team solves more, in "
        "points with the interval, and what the team and the agent solve. All players are trained with [at_grpo]"
        "(../algorithms/at_grpo.md) (random commit, horizon point), learning rate 0.001. One role's part is "
        "`environment.solo=true`; everything is "
        f"`environment.solo=true` with `environment.shares=[{PLACES}]`.",
        "",
        f"Written by `python -m benchmarks map`: "
        f"{hours:.1f} CPU hours. Every player trains on {BUDGET:,} sampled tokens, by "
        f"its own counter at most {beyond:.1%} more, because a run ends with a whole step; making the starters takes "
        "another hour and a half. Each seed has tasks of its own, the same for all players, so an interval over seeds "
        f"(95 %, Student's t) includes the luck of tasks. A place on the map has about "
        f"{TASKS // len(SHARES) // len(HOPS)} test tasks a seed, which training never sees; the agent with everything "
        f"plays about {TASKS // len(HOPS):,} for each number of hops. A number in bold is surely not 0; of all fields, "
        "one in twenty would be so by chance if there were no differences. A run is tested with the checkpoint that is "
        "best on validation tasks: where training does not help, that is the start. One starter serves all seeds of a "
        "panel, so no interval includes the luck of making one. Starters were chosen so that panels differ; one from "
        "which nothing was learned (0.9 million parameters, 120 steps) was left out.",
        "",
    ]
    for starter, begins in STARTERS.items():
        for rival in RIVALS:
            if _seeds(starter, rival):
                lines += [f"## {begins.title}: team minus {NAMES[rival]}", "", *_grid(starter, rival), ""]
    return [*lines, "## The team trained in other ways", "", *_otherwise(), "", "## All runs", "", *TABLE.lines(), ""]


def _otherwise() -> list[str]:
    """Returns the page's part on other methods, and on why a team learns little from a weak starter."""
    last = max((figures["curve"][-1][0] for figures in TABLE.found("small_200_team")[:1]), default=0)
    ways = {"team": "team of two, horizon point", **{player: title for player, (title, *_) in OTHERWISE.items()}}
    lines = [
        "**In the episodes.** A team that begins with a weak model learns to be silent. Before the last turn, a wrong "
        "hop costs a role as much as a right one pays. A model that is wrong more often than right learns to say only "
        "the start and, when the last turn comes and a guess is free, has lost the hops that it knew. One agent alone "
        "has one turn, the last one, and is paid for trying. Of 200 validation tasks, the team from the first starter "
        "(seed 0) ends 176 with a wrong path and solves 24 before training; after its last step it leaves 194 without "
        "a whole path and solves 5 (after `python -m benchmarks map small_200_team`: `coterie eval "
        f"runs/bench-map/small_200_team-0 --split validation --tasks 200 --step 0`, and `--step {last}`). With as many "
        "tokens, other ways to train the team are no better:",
        "",
        f"| success over the whole map | before training | {' | '.join(ways.values())} | {NAMES['part']} |",
        "|---|---|---|---|---|---|",
    ]
    for starter in WEAK:
        if all(found := [TABLE.found(f"{starter}_{player}") for player in (*ways, "part")]):
            start = fmean(figures["start_success"] for figures in found[0])
            cells = [
                f"{fmean(of):.3f} ({interval(of)})"
                for of in ([figures["success"] for figures in runs] for runs in found)
            ]
            lines.append(f"| {STARTERS[starter].title} | {start:.3f} | {' | '.join(cells)} |")
    return lines


def _seeds(starter: str, rival: str) -> int:
    """Returns the number of seeds that both the team and a rival have."""
    return min(len(TABLE.found(f"{starter}_{player}")) for player in ("team", rival))


def _answer() -> list[str]:
    """Returns a table of places that the team wins and loses, and of success before and after training."""
    lines = [
        f"How many of the {len(SHARES) * len(HOPS)} fields of a map the team surely wins and loses, and what each "
        "player solves, a mean over all fields, before and after training:",
        "",
        f"| all begin with | {' | '.join([*(f'against {NAMES[rival]}' for rival in RIVALS), *NAMES.values()])} |",
        "|---|" + "---|" * (len(RIVALS) + len(NAMES)),
    ]
    for starter, begins in STARTERS.items():
        if min(_seeds(starter, rival) for rival in RIVALS) > 1:
            told: list[str] = []
            for rival in RIVALS:
                gains = [gain(starter, rival, share, hops) for share in SHARES for hops in HOPS]
                wins, losses = sum(low > 0 for _, low, _ in gains), sum(high < 0 for _, _, high in gains)
                told.append(f"{wins} won, {losses} lost")
            for player in NAMES:
                start = fmean(figures["start_success"] for figures in TABLE.found(f"{starter}_{player}"))
                told.append(f"{start:.2f}, then {fmean(over(starter, player)):.2f}")
            lines.append(f"| {begins.title} | {' | '.join(told)} |")
    return lines


def _grid(starter: str, rival: str) -> list[str]:
    lines = [f"| | {' | '.join(f'{share} of {PLACES} known' for share in SHARES)} |", "|---|" + "---|" * len(SHARES)]
    for hops in HOPS:
        cells: list[str] = []
        for share in SHARES:
            mean, low, high = gain(starter, rival, share, hops)
            team, alone = (fmean(successes(starter, player, share, hops)) for player in ("team", rival))
            told = f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
            cells.append(f"{f'**{told}**' if low > 0 or high < 0 else told}: {team:.2f}, {alone:.2f}")
        lines.append(f"| {hops} hop{'s' if hops > 1 else ''} | {' | '.join(cells)} |")
    return lines


def picture(rival: str) -> str:
    """Returns an SVG of the map against one rival: a panel for each starter, a field for each place on the map."""
    across, top, high = LEFT + 3 * (WIDE * len(SHARES) + GAP), 78, TALL * len(HOPS) + 76
    parts = [text(20, 28, f"Team of two minus {NAMES[rival]}, points of success", size=15, bold=True)]
    for row, size in enumerate(("small", "large")):
        names = [name for name in STARTERS if name.startswith(size) and _seeds(name, rival)]
        for column, starter in enumerate(names):
            parts += _panel(starter, rival, LEFT + column * (WIDE * len(SHARES) + GAP), top + row * high)
    legend = (
        "Downwards: arrows that an answer joins. To the right: arrows that one role knows, of all. "
        "In the dark line, the team surely solves more.",
        "Blue: the team solves more. Orange: one agent solves more. Pale and grey: the 95 % interval over seeds "
        "contains 0.",
    )
    bottom = top + 2 * high
    parts += [text(20, bottom - 16 + 18 * number, words, size=12) for number, words in enumerate(legend)]
    return svg.picture(across, bottom + 16, parts)


def _panel(starter: str, rival: str, left: float, top: float) -> list[str]:
    """Returns a panel: a field a place on the map, and a line around those where the team surely wins."""
    team = TABLE.found(f"{starter}_team")
    before, after = (fmean(figures[key] for figures in team) for key in ("start_success", "success"))
    parts = [
        text(left, top - 22, f"{STARTERS[starter].short} of demonstrations", size=12, bold=True),
        text(left, top - 8, f"team: {before:.2f} before training, then {after:.2f}", size=11, fill="#444444"),
    ]
    wins: set[tuple[int, int]] = set()
    for row, hops in enumerate(HOPS):
        parts.append(text(left - 6, top + TALL * row + 18, f"{hops}", size=11, anchor="end"))
        for column, share in enumerate(SHARES):
            mean, low, high = gain(starter, rival, share, hops)
            sure = low > 0 or high < 0
            x, y = left + WIDE * column, top + TALL * row
            strength = min(1.0, abs(mean)) ** 0.5 * (0.85 if sure else 0.15)
            fill = "#1f6feb" if mean > 0 else "#e36209"
            parts.append(f'<rect x="{x}" y="{y}" width="{WIDE}" height="{TALL}" fill="{fill}" '
                         f'fill-opacity="{strength:.2f}" stroke="#ffffff"/>')  # fmt: skip
            colour = "#111111" if sure else "#666666"
            told = f"{100 * mean:+.0f}" if abs(mean) >= 0.005 else "0"
            parts.append(text(x + WIDE / 2, y + 18, told, size=12, anchor="middle", fill=colour))
            if low > 0:
                wins.add((row, column))
    for column, share in enumerate(SHARES):
        x = left + WIDE * (column + 0.5)
        parts.append(text(x, top + TALL * len(HOPS) + 14, f"{share}/{PLACES}", size=11, anchor="middle"))
    return [*parts, *_border(wins, left, top)]


def _border(wins: set[tuple[int, int]], left: float, top: float) -> list[str]:
    """Returns the line around some fields of a panel."""
    edges: list[str] = []
    for row, column in sorted(wins):
        x, y = left + WIDE * column, top + TALL * row
        sides = {
            (row - 1, column): (x, y, x + WIDE, y), (row + 1, column): (x, y + TALL, x + WIDE, y + TALL),
            (row, column - 1): (x, y, x, y + TALL), (row, column + 1): (x + WIDE, y, x + WIDE, y + TALL),
        }  # fmt: skip
        edges += [
            f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="#0b2a63" stroke-width="2.5"/>'
            for beside, (a, b, c, d) in sides.items()
            if beside not in wins
        ]
    return edges


def over(starter: str, player: str, shares: Sequence[int] = SHARES) -> list[float]:
    """Returns a player's success by seed, a mean over places on the map: all hops, and some or all shares."""
    places = [successes(starter, player, share, hops) for share in shares for hops in HOPS]
    return [fmean(seed) for seed in zip(*places, strict=True)]


def _gains(starter: str, shares: Sequence[int] = SHARES) -> list[float]:
    """Returns the team's success minus that of one agent with one role's part, by seed, a mean over places."""
    pairs = zip(over(starter, "team", shares), over(starter, "part", shares), strict=False)
    return [team - alone for team, alone in pairs]


LARGER = (
    "The same two dials with prompted and trained models of 1 to 8 billion parameters: what a role may see is text."
)
CLAIMS = (
    Claim(
        "damaged_context", "A team pays where one agent sees only half of what is known",
        "arXiv:2604.02460: one agent matches a team unless its context is damaged. There, what an agent reads is "
        "degraded; here, it lacks facts that a partner would have.",
        ("team of two", "one agent with one role's part"),
        lambda: [
            Comparison(begins.short, over(starter, "team", SHARES[:1]),
                       over(starter, "part", SHARES[:1]))
            for starter, begins in STARTERS.items()
        ],
        "map", LARGER,
        "**How to read it.** A number is a mean over answers that join one to four arrows. With 0.9 million parameters "
        "and 350 steps, a gain where one arrow is enough and losses where three or four are joined cancel "
        "([the map](../map.md)).",
    ),
    Claim(
        "whole_context", "One agent that sees everything matches a team",
        "arXiv:2604.02460, arXiv:2606.13003.",
        ("one agent with everything", "team of two"),
        lambda: [
            Comparison(begins.short, over(starter, "whole"), over(starter, "team"), margin=0.02)
            for starter, begins in STARTERS.items()
        ],
        "map", LARGER,
    ),
    Claim(
        "gains_fade", "A team gains less if one agent can achieve more",
        "arXiv:2512.08296: coordination pays less, the more the single agent achieves.",
        ("gain with fewer demonstrations", "with more"),
        lambda: [
            Comparison(f"{STARTERS[weak].short} against {STARTERS[better].steps:,}", _gains(weak), _gains(better))
            for weak, better in pairwise(STARTERS)
            if STARTERS[weak].hidden_size == STARTERS[better].hidden_size
        ],
        "map", LARGER,
        "**How to read it.** All players begin with a model that has seen fewer or more demonstrations. After "
        "training, one agent with everything achieves more from more of them (the map says how much). An agent that "
        "lacks facts stays at what it knows, however good it is, so a better model leaves the team more to gain. The "
        "source compares with an agent that could solve its tasks alone. In these tasks that is the dial of [what one "
        "agent knows](gains_fade_with_knowledge.md), and there the gain fades.",
        measured="What the team achieves more than one agent with one role's part, a mean over the map",
    ),
    Claim(
        "gains_fade_with_knowledge", "A team gains less if one agent knows more",
        "arXiv:2512.08296: coordination pays less, the more the single agent achieves.",
        ("gain where a role knows half", "where it knows all"),
        lambda: [
            Comparison(begins.short, _gains(starter, SHARES[:1]), _gains(starter, SHARES[-1:]))
            for starter, begins in STARTERS.items()
        ],
        "map", LARGER,
        "**How to read it.** From few demonstrations there is no gain that could fade: the team is nowhere better, and "
        "loses most where a role knows all ([why](../map.md#the-team-trained-in-other-ways)).",
        measured="What the team achieves more than one agent with one role's part, a mean over hops",
    ),
)  # fmt: skip
