"""Comparison of a team with single agents: success against sampled tokens, with several seeds per table row.

The single agents are one agent alone, one agent with the same feedback over turns, and one agent with a majority vote
over its replies. Each has the team's budget of sampled tokens, in training and in evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from benchmarks.intervals import over_seeds
from benchmarks.rows import Table
from coterie.bench import Say
from coterie.kernel.safe import plain
from coterie.run.loaded import load

COLOURS = ("#1f6feb", "#d1242f", "#8250df", "#1a7f37", "#bc4c00")
WIDTH, HEIGHT, LEFT, TOP = 560, 250, 60, 30
Curve = list[tuple[float, float]]
"""Points of one run: millions of tokens sampled in training so far, success on validation."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A team or agent that is compared. row: its row of the table. votes: replies drawn at every question at play."""

    title: str
    row: str
    votes: int = 1


@dataclass(frozen=True, slots=True)
class Contest:
    """A page's comparison of a team with one agent. picture: a file. agent: text on who plays alone. answer: text."""

    table: Table
    picture: Path
    agent: str
    answer: str
    entrants: Sequence[Entrant]

    def section(self, say: Say) -> list[str]:
        """Returns the page's section: the question, the picture, a table of what each entrant achieves, the answer."""
        return [
            "## Does the team beat one agent?",
            "",
            self.agent,
            "",
            f"![success against sampled tokens]({self.picture.name})",
            "",
            *table_lines(self.table, self.entrants, say),
            "",
            self.answer,
            "",
        ]

    def publish(self, page: Path, lines: Callable[[Say], list[str]], say: Say) -> dict[str, float]:
        """Makes the missing runs, writes the page and the picture, and returns success by row."""
        self.table.make(say)
        page.write_text(plain("\n".join(lines(say))))
        self.picture.write_text(picture(self.table, self.entrants))
        return self.table.success()


def curves_of(table: Table, row: str) -> list[Curve]:
    """Returns the validation curve of each run of a row, against the tokens sampled by then."""
    return [[(tokens / 1e6, success) for _, tokens, success in figures["curve"]] for figures in table.found(row)]


def at_budget(curve: Curve, tokens: float) -> float:
    """Returns a run's success after so many million sampled tokens, interpolated between two validations."""
    for (left, before), (right, after) in pairwise(curve):
        if left <= tokens <= right:
            return before + (after - before) * (tokens - left) / max(right - left, 1e-12)
    return curve[-1][1]


def table_lines(table: Table, entrants: Sequence[Entrant], say: Say) -> list[str]:
    """Returns a table, a line per entrant: success at its best checkpoint and at the largest common budget, costs."""
    entrants = [entrant for entrant in entrants if table.found(entrant.row)]
    curves = {entrant.row: curves_of(table, entrant.row) for entrant in entrants}
    common = min(curve[-1][0] for several in curves.values() for curve in several)
    lines = [
        f"| | test success | by seed | validation success at {common:.2f} M sampled tokens | "
        "sampled in training (M tokens) | sampled tokens per test task |",
        "|---|---|---|---|---|---|",
    ]
    for entrant in entrants:
        evaluations = [load(run.folder).evaluate(votes=entrant.votes) for run in table.runs(entrant.row)]
        say(f"{entrant.title}: played")
        equal = [at_budget(curve, common) for curve in curves[entrant.row]]
        cells = (
            entrant.title,
            f"**{spread([each.success for each in evaluations])}**",
            ", ".join(f"{each.success:.3f}" for each in evaluations),
            spread(equal) if entrant.votes == 1 else "",
            f"{fmean(curve[-1][0] for curve in curves[entrant.row]):.2f}",
            f"{fmean(each.tokens for each in evaluations):.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spread(values: Sequence[float]) -> str:
    """Returns a mean over seeds with its 95 % interval as text; the values are shares."""
    mean, low, high = over_seeds(values)
    return f"{mean:.3f}" if len(values) < 2 else f"{mean:.3f} ({max(0.0, low):.3f} to {min(1.0, high):.3f})"


def picture(table: Table, entrants: Sequence[Entrant], legend: float = 0.0) -> str:
    """Returns an SVG of validation success against sampled tokens: a thin line a seed, a thick one their mean.

    The mean ends where the first of them does.

    Args:
        legend: success above which the names of the lines stand, at the right.
    """
    curves = {entrant.title: curves_of(table, entrant.row) for entrant in entrants
              if entrant.votes == 1 and table.found(entrant.row)}  # fmt: skip
    furthest = max(curve[-1][0] for several in curves.values() for curve in several)

    def place(tokens: float, success: float) -> str:
        return f"{LEFT + WIDTH * tokens / furthest:.1f},{TOP + HEIGHT * (1 - success):.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {TOP + HEIGHT + 50}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="640" height="{TOP + HEIGHT + 50}" fill="#ffffff"/>',
    ]
    for success in (0.0, 0.25, 0.5, 0.75, 1.0):
        (x, y), (right, _) = (place(tokens, success).split(",") for tokens in (0.0, furthest))
        lines.append(f'<line x1="{x}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>')
        lines.append(f'<text x="52" y="{float(y) + 4}" text-anchor="end" fill="#444444">{success:.0%}</text>')
    unit, times = ("millions", 1) if furthest >= 0.5 else ("thousands", 1000)
    for at in range(5):
        x = place(furthest * at / 4, 0).split(",")[0]
        tokens = f"{times * furthest * at / 4:.2g}"
        lines.append(f'<text x="{x}" y="{TOP + HEIGHT + 18}" text-anchor="middle" fill="#444444">{tokens}</text>')
    for number, (title, several) in enumerate(curves.items()):
        colour = COLOURS[number]
        mean = [tuple(map(fmean, zip(*points, strict=True))) for points in zip(*several, strict=False)]
        thin = [(curve, 'stroke-width="1" opacity="0.3"') for curve in several]
        for points, style in (*thin, (mean, 'stroke-width="3"')):
            joined = " ".join(place(*point) for point in points)
            lines.append(f'<polyline fill="none" stroke="{colour}" {style} points="{joined}"/>')
        y = TOP + HEIGHT * (1 - legend) - 14 - 18 * (len(curves) - 1 - number)
        lines.append(f'<text x="{LEFT + WIDTH - 6}" y="{y}" text-anchor="end" fill="{colour}">{title}</text>')
    caption = f"Success on validation, greedy, against tokens sampled in training ({unit})"
    lines.append(f'<text x="340" y="{TOP + HEIGHT + 40}" text-anchor="middle" fill="#111111">{caption}</text></svg>')
    return "\n".join(lines) + "\n"
