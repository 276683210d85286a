"""Published claims beside our numbers: a page for each, with differences, intervals, a verdict and a picture.

`python -m benchmarks claims` writes docs/results/claims/ from the figures that the benchmarks keep; it trains nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from benchmarks import svg
from benchmarks.intervals import half_width, over_seeds
from benchmarks.rows import TEN, Table, in_checkout
from coterie.bench import Say

FOLDER = Path("docs/results/claims")
HOMES = ("paper", "ablations", "methods", "map")
"""Benchmarks that test claims: modules with CLAIMS."""
Verdict = Literal["holds", "does not hold", "no difference", "not decided"]
EQUAL = 0.05
"""Largest difference of success at which two rows count as equal, where the claim is that they differ."""
TITLES: dict[Verdict, str] = {
    "does not hold": "Does not hold",
    "no difference": f"Differs by less than {100 * EQUAL:.0f} points",
    "holds": "Holds",
    "not decided": "Not decided",
}
"""Titles of the verdicts, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Versus:
    """The difference in success between two rows: mean over pairs of seeds and its 95 % interval, as shares."""

    mean: float
    low: float
    high: float
    margin: float = 0.0
    """Success by which the first row may be below the second, if the claim is that it is not below."""

    @classmethod
    def between(cls, more: Sequence[float], less: Sequence[float], margin: float = 0.0) -> Versus:
        """Compares two rows with equally many seeds, seed by seed.

        Runs of one seed draw with the same random numbers, so they may be more alike than others.
        """
        return cls(*over_seeds([one - other for one, other in zip(more, less, strict=True)]), margin)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the claim that the first row is better or, with a margin, not worse by more than it.

        Without a margin there is no difference where the interval contains 0 and is within EQUAL of it.
        """
        if self.low > -self.margin:
            return "holds"
        if self.high < -self.margin:
            return "does not hold"
        return "no difference" if not self.margin and self.low > -EQUAL and self.high < EQUAL else "not decided"

    def __str__(self) -> str:
        low, high = max(self.low, -1.0), min(self.high, 1.0)
        return f"{100 * self.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two rows that a claim compares, and the published numbers.

    more, less: success by seed. published: numbers of the source, in its unit. margin: see `Versus`.
    """

    label: str
    more: Sequence[float]
    less: Sequence[float]
    published: str = ""
    margin: float = 0.0

    def common(self) -> Comparison:
        """Returns the comparison with only the seeds that both rows have."""
        seeds = min(len(self.more), len(self.less))
        return replace(self, more=self.more[:seeds], less=self.less[:seeds])

    @property
    def versus(self) -> Versus:
        """Difference between the two rows, which must have equally many seeds."""
        return Versus.between(self.more, self.less, self.margin)

    @property
    def close(self) -> bool:
        """True if ten seeds with this mean and deviation would decide what these, which are fewer, leave open."""
        it, seeds = self.versus, len(self.more)
        if it.verdict != "not decided" or seeds >= len(TEN):
            return False
        half = (it.high - it.mean) * half_width(len(TEN)) / half_width(seeds)
        return replace(it, low=it.mean - half, high=it.mean + half).verdict != "not decided"


@dataclass(frozen=True, slots=True)
class Claim:
    """A published claim, who made it, and what we measured.

    name: of its page. text: a sentence. source: who, where, and in which setting. compared: our numbers, from the
    figures that are kept. rows: what the two compared things are, in words. seen: what the episodes and curves show.
    settle: what would decide it for large models. command: the benchmark that makes the figures. measured: what a
    number is.
    """

    name: str
    text: str
    source: str
    rows: tuple[str, str]
    compared: Callable[[], Sequence[Comparison]]
    command: str
    settle: str
    seen: str = ""
    measured: str = "Success on test tasks that training never sees"

    def found(self) -> list[Comparison]:
        """Returns the comparisons of which both rows have two seeds or more, with the seeds that both have."""
        return [each for each in (compared.common() for compared in self.compared()) if len(each.more) > 1]

    def where(self, verdict: Verdict) -> list[str]:
        """Returns the labels of the comparisons with this verdict."""
        return [each.label for each in self.found() if each.versus.verdict == verdict]

    def answer(self) -> str:
        """Returns one line that says where the claim does not hold and where it does."""
        parts = [
            f"**{title}**: {'; '.join(where)}." for verdict, title in TITLES.items() if (where := self.where(verdict))
        ]
        return " ".join(parts) or "Not measured yet."

    def page(self) -> str:
        """Returns the claim's page as Markdown."""
        found = self.found()
        seeds = sorted({len(each.more) for each in found})
        allowed = sorted({each.margin for each in found if each.margin})
        margin = f" Up to {100 * allowed[0]:.0f} points below count as equal." if allowed else (
            f" An interval that contains 0 and is within {100 * EQUAL:.0f} points of it tells no difference."
        )  # fmt: skip
        more, less = self.rows
        lines = [
            f"# {self.text}",
            "",
            self.answer(),
            "",
            f"**Source.** {self.source}",
            "",
            f"**Here.** {self.measured}, {' or '.join(map(str, seeds)) or 'not yet two'} seeds a row"
            f"{', those that both rows have' if len(seeds) > 1 else ''}. The difference is {more} minus {less}, in "
            "points, with its 95 % interval over seeds (Student's t)."
            f"{margin}",
            "",
            f"![differences with their intervals]({self.name}.svg)",
            "",
            f"| | {more} | {less} | difference | published | verdict |",
            "|---|---|---|---|---|---|",
            *(
                f"| {each.label} | {_mean(each.more)} | {_mean(each.less)} | {each.versus} | {each.published} | "
                f"{each.versus.verdict} |"
                for each in found
            ),
            "",
            *([self.seen, ""] if self.seen else []),
            f"**Command.** `python -m benchmarks {self.command}` makes the figures that are missing, and `python -m "
            f"benchmarks {self.command} ROW …` those of some rows (a wrong one lists all), in "
            f"`docs/results/data/{self.command}.jsonl`; `python -m benchmarks claims` writes this page from them.",
            "",
            f"**What would settle it.** {self.settle}",
            "",
        ]
        return "\n".join(lines)

    def picture(self) -> str:
        """Returns the differences and their intervals as an SVG."""
        found = self.found()
        colours = {"holds": svg.BETTER, "does not hold": svg.WORSE}
        dots = [
            svg.Dot(each.label, it.mean, it.low, it.high, colours.get(it.verdict, svg.UNSURE))
            for each in found
            for it in (each.versus,)
        ]
        furthest = max((abs(value) for dot in dots for value in (dot.low, dot.high)), default=1.0)
        reach = next(limit for limit in (0.1, 0.2, 0.5, 1.0) if furthest <= limit or limit == 1.0)
        left, top, width = 300, 34, 380
        ticks = [reach * part / 2 for part in range(-2, 3)]
        height = top + svg.LINE * len(dots) + 46
        more, less = self.rows
        return svg.picture(left + width + 30, height, [
            svg.text(10, 18, self.text, size=13, bold=True),
            *svg.panel(dots, left, top, width, ticks, zero=True),
            svg.text(left + width / 2, height - 10, f"{more} minus {less}, points", size=11, anchor="middle"),
        ])  # fmt: skip


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}"


def claims() -> list[Claim]:
    """Returns all claims, in the order of their benchmarks."""
    return [claim for home in HOMES for claim in importlib.import_module(f"benchmarks.{home}").CLAIMS]


def against(tested: Sequence[Claim]) -> str:
    """Returns the first line of a results page: which claims do not hold, and where."""
    if not any(claim.found() for claim in tested):
        return "No claim has been measured yet."
    told: list[str] = []
    for verdict in ("does not hold", "no difference"):
        found = [
            f'"[{claim.text}](claims/{claim.name}.md)" ({"; ".join(where)})'
            for claim in tested
            if (where := claim.where(verdict))
        ]
        if found:
            told.append(f"**{TITLES[verdict]} here**: {'; '.join(found)}.")
    return " ".join(told) or "No published claim is contradicted here."


def run(say: Say) -> dict[str, Any]:
    """Writes a page and a picture for each claim and their index, and returns the number of comparisons by verdict.

    Raises:
        ConfigError: this is no checkout of the repository, or a run is not comparable; then nothing is written.
    """
    in_checkout(FOLDER.parent)
    files = {"index.md": "\n".join(index())}
    counts: dict[str, Any] = {}
    for claim in claims():
        files |= {f"{claim.name}.md": claim.page(), f"{claim.name}.svg": claim.picture()}
        for each in claim.found():
            counts[each.versus.verdict] = counts.get(each.versus.verdict, 0) + 1
        say(f"{claim.text}: {claim.answer()}")
    FOLDER.mkdir(exist_ok=True)
    for name, text in files.items():
        (FOLDER / name).write_text(text)
    return counts


def validated(tables: Sequence[Table]) -> tuple[float, float]:
    """Returns the tokens that validation samples as a share of those sampled in training: least and most of all rows.

    Estimated from the tokens of a test task after training.
    """
    shares: list[float] = []
    for table in tables:
        for name, row in table.rows.items():
            if found := table.found(name):
                tasks = row.resolved(row.seeds[0]).train.eval_tasks
                shares.append(fmean(len(one["curve"]) * tasks * one["tokens"] / one["sampled_tokens"] for one in found))
    return min(shares, default=0.0), max(shares, default=0.0)


def unfinished(made: int, runs: int, close: int) -> str:
    """Returns the index's words on runs that are still to be made and comparisons that should have ten seeds."""
    left = f"Comparisons that meet it and have fewer than ten: {close}. " if close else ""
    return left + (f"{runs - made} of {runs} runs are still to come, so some rows have fewer. " if made < runs else "")


def index() -> list[str]:
    """Returns the lines of the page that lists all claims."""
    tables = [importlib.import_module(f"benchmarks.{home}").TABLE for home in HOMES]
    hours = sum(table.spent()[0] for table in tables)
    runs = sum(len(row.seeds) for table in tables for row in table.rows.values())
    made = sum(len(table.found(name)) for table in tables for name in table.rows)
    decided = [each for claim in claims() for each in claim.found()]
    missing = unfinished(made, runs, sum(each.close for each in decided))
    least, most = validated(tables)
    return [
        "# Claims about teams, measured",
        "",
        "Each page states a claim, its source and published numbers, our numbers with their intervals, the command, "
        "and what would settle it for larger models. *Second-hand* are published numbers that we have from notes on a "
        "paper and not from the paper itself. On the map, *0.2 M, 200 steps* is a model of 0.2 million parameters "
        "after 200 steps of demonstrations. Where a page does not say otherwise, all rows of a task have one budget of "
        f"sampled tokens and the same starter. The runs behind these pages took {hours:.1f} CPU "
        "hours, without the starters of the map and the sandboxes that run programs. There are "
        f"{len(decided)} comparisons: if no two rows differed at all, about {len(decided) / 20:.0f} intervals of 95 % "
        "would still leave out zero, so a claim that holds narrowly in one place says little. Every row has five "
        "seeds. It has ten if five left a comparison open that ten with the same mean and deviation would close. "
        "That was decided after the five, so a verdict on ten seeds is wrong more often than in one case of twenty, "
        f"though at most in one of ten. {missing}Two rows are compared on the seeds that "
        "both have. All seeds of a row, but those of the map, play the same test tasks, which no interval includes: "
        "with other tasks a difference may be a point or two another one. A budget counts what is sampled to learn "
        "from. The validations that choose a run's checkpoint come on top: by row, they sample about "
        f"{least:.0%} to {most:.0%} as many tokens, more with a team, and a run of larger steps chooses among fewer "
        "checkpoints. The runs were made on several machines. A seed gives the same figures again on the same kind "
        "of processor. On another, rounding differs and the run with it: seed 0 of `plan_path_once`, the only one "
        "that was repeated on another, reached 0.868 there instead of 0.852, more than any of the row's ten seeds. "
        "So where a difference is a point or two, the machines may have made it.",
        "",
        "| claim | here |",
        "|---|---|",
        *(f"| [{claim.text}]({claim.name}.md) | {claim.answer()} |" for claim in claims()),
        "",
    ]
