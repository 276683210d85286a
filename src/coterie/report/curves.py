"""A run's metrics as curves, every run overlaid, with the numbers behind each picture."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from coterie.report.charts import COLORS, Series, line_chart

SHARES = ("success", "share")
"""Endings of the names of metrics that are drawn from 0 to 1."""
ACROSS = {"budget/sampled_tokens": "sampled tokens"}
"""Metrics that may stand in place of steps on the axis of a curve, and their titles."""
MOST_ROWS = 40
"""Maximum number of rows of the numbers behind a picture; longer curves are thinned."""
Line = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, its name and its numbers: a row a step, a column a run, None where it has none there.

    across: what is in the place of steps.
    """

    name: str
    svg: Markup
    across: str
    runs: Sequence[str]
    rows: Sequence[tuple[float, Sequence[float | None]]]


def sections(
    lines: Sequence[Sequence[Line]], names: Sequence[str], roles: Sequence[str], policies: Sequence[str]
) -> Iterator[tuple[str, list[Chart]]]:
    """Yields titled groups of curves: the team's, each role's, each policy's, what the environment noted, and cost.

    Args:
        lines: of metrics.jsonl, of each run. names: the runs'.
        roles, policies: of the first run.
    """
    there = dict.fromkeys(key for run in lines for line in run for key in line)

    def under(prefix: str, *more: str) -> list[str]:
        """Returns some metrics, and those under a prefix in the order in which they are logged."""
        return [*more, *(key for key in there if key.startswith(prefix))]

    wanted = [
        ("Team", ["validation/success", "rollout/success", "validation/turns", "reward/team", "groups/live_share"]),
        *((f"Role {role}", under(f"role/{role}/", f"reward/{role}", f"mute/{role}/change")) for role in roles),
        *((f"Policy {name}", under(f"policy/{name}/")) for name in policies),
        ("Noted by the environment", under("metric/")),
        ("Memory", under("memory/")),
        ("Time and cost", ["time/step", "time/rollout", "time/update", "time/tokens_per_s", "budget/sampled_tokens"]),
    ]
    for title, keys in wanted:
        charts = [made for key in keys if (made := chart(key, lines, names)) is not None]
        if charts:
            yield title, charts


def chart(key: str, lines: Sequence[Sequence[Line]], names: Sequence[str], across: str = "step") -> Chart | None:
    """Returns a chart of a metric of runs over their steps, or over another metric; None: none of them has it."""
    series: list[Series] = []
    value_of = _reader(key)
    for run, name, color in zip(lines, names, itertools.cycle(COLORS)):
        low, high = f"{key}_low", f"{key}_high"
        points: list[tuple[float, float]] = []
        band: list[tuple[float, float]] = []
        for line in run:
            value = value_of(line)
            if value is not None and (across in line or not line["step"]):  # at the start nothing was sampled
                points.append((line.get(across, 0.0), value))
                if low in line and high in line:
                    band.append((line[low], line[high]))
        if points:
            series.append(Series(name, points, color, band if len(band) == len(points) else ()))
    if not series:
        return None
    svg = Markup(line_chart(series, key, share=key.endswith(SHARES)))  # noqa: S704  (ours, escaped there)
    named, axis = (key, across) if across == "step" else (f"{key}, by {ACROSS[across]}", ACROSS[across])
    return Chart(named, svg, axis, [one.label for one in series], _rows(series))


def latest_of(lines: Sequence[Line]) -> dict[str, float]:
    """Returns the latest value of each metric."""
    last: dict[str, float] = {}
    for line in lines:
        last |= line
    return last


def drawn(name: str, points: Sequence[tuple[float, float]]) -> Chart:
    """Returns a chart with one curve through given points."""
    series = Series(name, points, COLORS[0])
    return Chart(name, Markup(line_chart([series], name)), "step", [name], _rows([series]))  # noqa: S704  (escaped there)


def _rows(series: Sequence[Series]) -> list[tuple[float, Sequence[float | None]]]:
    columns = [dict(one.points) for one in series]
    steps = sorted({step for column in columns for step in column})
    thin = max(1, -(-len(steps) // MOST_ROWS))
    kept = [*steps[:-1:thin], *steps[-1:]]
    return [(step, [column.get(step) for column in columns]) for step in kept]


def _reader(key: str) -> Callable[[Line], float | None]:
    """Returns a function that gives a metric's value in a line, or None."""
    if key == "groups/live_share":
        return lambda line: line["groups/live"] / line["groups/total"] if line.get("groups/total") else None
    middle = next((key.removesuffix(end) for end in ("_low", "_high") if key.endswith(end)), "")
    if middle:
        return lambda line: None if middle in line else line.get(key)  # else it is that one's interval
    return lambda line: line.get(key)
