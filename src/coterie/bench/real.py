"""Results of teams over a real pretrained model, and of one agent in their place, five seeds each.

Every team is trained as its config says: two adapters over one model of 135 million parameters. One agent is trained on
about as many sampled tokens: with one role's page, or with both pages; then also by a vote over five replies. Writes
docs/results/real.md.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.contest import spread
from coterie.bench.rows import FIVE, Row, Table

PAGE = Path("docs/results/real.md")
VOTES = 5
"""Replies to a question, of which the most frequent counts."""


def _world(name: str, last: str, tokens: int) -> dict[str, Row]:
    """The rows of a world: its team, and one agent with the last role's page and with both.

    tokens: that one agent samples in training, as many as the team's longest run.
    """
    config = f"configs/{name}.toml"
    alone = (
        "environment.solo=true",
        "train.tasks_per_step=32",  # as many replies a step as two roles get
        "train.steps=200",  # the budget ends it
        f"train.max_sampled_tokens={tokens}",
        "train.stop_dead_steps=200",
    )
    return {
        name: Row(f"{name}: the team", config, seeds=FIVE),
        f"{name}_part": Row(f"{name}: one agent with the {last}'s page", config, None, alone, FIVE, VOTES),
        f"{name}_whole": Row(
            f"{name}: one agent with both pages", config, None, (*alone, "environment.view=full"), FIVE, VOTES
        ),
    }


TABLE = Table(
    Path("runs/bench-real"),
    "coterie.bench.real",
    {**_world("errand", "cashier", 72_000), **_world("documents", "statistician", 120_000)},
    kept=Path("docs/results/data/real.jsonl"),
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return [
        "# Results: a real model",
        "",
        *table_lines(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 5, 10, 15, 20, 25, 30, 35, 40)),
        "",
    ]


def table_lines() -> list[str]:
    """A line a row: test success before and after, by vote, without each role, and the cost."""
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
    """What the team loses without each role, from the least to the most over its seeds, in points."""
    roles = runs[0].get("mute", {})
    changes = {role: sorted(100 * figures["mute"][role] for figures in runs) for role in roles}
    return "; ".join(f"{role} {lost[-1]:+.0f} to {lost[0]:+.0f}" for role, lost in changes.items())
