"""Results of teams over a real pretrained model, and of one agent in their place.

Every team is trained as its config says: two adapters over one model of 135 million parameters. One agent is trained on
about as many sampled tokens: with one role's page, or with both pages; then also by a vote over five replies. Writes
docs/results/real.md.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.contest import Entrant, picture, spread
from benchmarks.rows import FIVE, Row, Table
from coterie.bench import Say

PAGE, PICTURE = Path("docs/results/real.md"), Path("docs/results/real.svg")
THREE = (0, 1, 2)
VOTES = 5
"""Number of replies to a question, of which the most frequent counts."""


def _world(name: str, last: str, *, words: int, tokens: int) -> dict[str, Row]:
    """Returns the rows of a world: its team, and one agent with the last role's page and with both.

    words: tokens of a reply of the one agent, as many as the team's two may have together, so that it can say first
    what the other role would. tokens: that it samples in training, about as many as the team's longest run.
    """
    config = f"configs/{name}.toml"
    alone = (
        "environment.solo=true",
        f"environment.max_tokens={words}",
        "optimizer.lr=1e-4",  # of 1e-4 and 3e-4 what was better on validation, errand with both pages, seed 0
        "train.tasks_per_step=32",  # as many replies a step as two roles get
        "train.steps=200",  # the budget ends it
        f"train.max_sampled_tokens={tokens}",
        "train.stop_dead_steps=200",
    )
    part = Row(f"{name}: one agent with the {last}'s page", config, None, alone, THREE, VOTES)
    whole = Row(f"{name}: one agent with both pages", config, None, (*alone, "environment.view=full"), THREE, VOTES)
    return {name: Row(f"{name}: the team", config, seeds=FIVE), f"{name}_part": part, f"{name}_whole": whole}


def _alone_aiw() -> Row:
    """Returns the row of one reasoner, with as many tokens a reply as the team's two may have together."""
    team = tomllib.loads(Path("configs/reasoning_gym.toml").read_text())
    world = {key: value for key, value in team["environment"].items() if key != "answer_tokens"}
    train = {"tasks_per_step": 32, "steps": 200, "max_sampled_tokens": 18_000, "stop_dead_steps": 200}
    tables = {**team, "environment": {**world, "solo": True, "proposal_tokens": 24}, "train": train}
    return Row("reasoning_gym:aiw: one agent", tables, seeds=THREE, votes=VOTES)


TABLE = Table(
    Path("runs/bench-real"),
    "benchmarks.real",
    {
        **_world("errand", "cashier", words=24, tokens=72_000),
        **_world("documents", "statistician", words=32, tokens=120_000),
        "reasoning_gym_solo": _alone_aiw(),
        "reasoning_gym": Row("reasoning_gym:aiw: the team", "configs/reasoning_gym.toml", seeds=FIVE),
        "taboo": Row("taboo: the team", "configs/taboo.toml", seeds=FIVE),
    },
    kept=Path("docs/results/data/real.jsonl"),
)

ENTRANTS = [
    Entrant("two adapters, a page each", "errand"),
    Entrant("one adapter with both pages", "errand_whole"),
    Entrant("one adapter with one page", "errand_part"),
]


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the page and the picture, and returns success by row."""
    success = TABLE.publish(PAGE, page, say)
    PICTURE.write_text(picture(TABLE, ENTRANTS, legend=0.4))
    return success


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    return [
        "# Results: a real model",
        "",
        "Written by `python -m benchmarks real`. "
        "Every team is two adapters of rank 16 over one SmolLM2-135M-Instruct (134.5 "
        "million parameters, dequantised from 4 bits), trained as `coterie train NAME --model smollm2` does it (aiw: "
        "`coterie train configs/reasoning_gym.toml`), on a processor with one thread. Success is that of greedy play "
        "on 200 test tasks (80 of taboo), which training never shows; the checkpoint is chosen on 64 validation tasks "
        "(60 of taboo). Intervals are 95 % intervals over seeds (Student's t).",
        "",
        "One agent is one adapter over the same model. It has as many tokens a reply as the team's two replies may "
        "have together, so that it can say first what the other role would; as many replies a step; and about as many "
        "sampled tokens in training as the team's longest run: on errand a quarter more than the mean of the team's "
        "runs, on documents 2 % less. "
        "Its learning rate is the better of 1e-4 and 3e-4 on errand with both pages, seed 0; teams have the default, "
        "3e-4, except aiw, whose config has 1e-4, compared with 3e-4 on seeds 0 and 1. "
        f"It is also played by a vote: of {VOTES} sampled replies the most frequent counts.",
        "",
        "**What this does not tell.** The first role of a team has a reward of its own, for the right word, which one "
        "agent has not: part of the difference may be that reward. Prompts, rewards and defaults were changed until "
        "the *team* learned errand ([how](../real_models.md#what-it-learns)); for one agent nothing but its learning "
        "rate was tried, on errand alone. It is asked for one number, and says about half as many tokens as it may. "
        "taboo has no such comparison: one agent that sees the word has nothing to guess.",
        "",
        f"![errand, success against sampled tokens]({PICTURE.name})",
        "",
        *table_lines(),
        "",
        "*without a role*: the change of success on 64 validation tasks (60 of taboo) with that role muted, in points, "
        "from the least to the most of the seeds, measured once in a run, at step 25 or where it ended earlier, so "
        "not with the checkpoint that was tested. Without the role that speaks last nothing can be solved: its number "
        "is what the team solved at that step. aiw's runs ended before it was due.",
        "",
    ]


def table_lines() -> list[str]:
    """Returns a table, a line per row: test success before and after, by vote, without each role, and the cost."""
    lines = [
        "| | test, start | test, end (95 % over seeds) | by seed | vote of five, start | vote of five, end | "
        "without a role, validation | sampled in training (k tokens) | CPU minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in TABLE.rows.items():
        if runs := TABLE.found(name):
            ends = [figures["success"] for figures in runs]
            votes = [f"{fmean(run[key] for run in runs):.3f}" if key in runs[0] else "" for key in VOTED]
            cells = (
                row.title,
                f"{fmean(figures['start_success'] for figures in runs):.3f}",
                f"**{spread(ends)}**",
                ", ".join(f"{success:.3f}" for success in ends),
                *votes,
                _muted(runs),
                f"{fmean(figures['sampled_tokens'] for figures in runs) / 1000:.0f}",
                f"{fmean(figures['cpu_minutes'] for figures in runs):.0f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


VOTED = ("start_votes", "votes")


def _muted(runs: list[dict[str, Any]]) -> str:
    """Returns the changes of success with each role muted, in points, from the least loss to the most of the seeds.

    A run that ended before its last step at the time of these runs muted nobody.
    """
    asked = [figures["mute"] for figures in runs if "mute" in figures]
    changes = {role: sorted(100 * each[role] for each in asked) for role in (asked[0] if asked else ())}
    return "; ".join(f"{role} {lost[-1]:+.0f} to {lost[0]:+.0f}" for role, lost in changes.items())
