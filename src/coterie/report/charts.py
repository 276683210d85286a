"""Draws line charts as SVG text, for pages and files. No script, no font, no request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

Point = tuple[float, float]
COLORS = ("#2f7ed8", "#e8762d", "#1d9a6c", "#a05bd0", "#d64545", "#b8901a")
"""Colours of the series, readable on light and dark."""
MOST_POINTS = 120
"""Maximum number of points of a line that are drawn; longer ones are thinned."""
WIDTH, HEIGHT = 320, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 8, 24


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a chart. band: low and high at each of its points, drawn behind it."""

    label: str
    points: Sequence[Point]
    color: str
    band: Sequence[Point] = ()
    width: float = 1.8


def line_chart(series: Sequence[Series], title: str, *, share: bool = False) -> str:
    """Draws lines over steps, with all that is needed to read them.

    Args:
        title: for readers who hear it.
        share: the y axis is 0 to 1, in percent.

    Returns:
        an <svg> whose text takes the colour around it.
    """
    points = [point for line in series for point in line.points]
    xs = [x for x, _ in points] or [0.0]
    ys = [y for _, y in points] + [y for line in series for pair in line.band for y in pair] or [0.0]
    left, right = min(xs), max(*xs, min(xs) + 1)
    low, high = (0.0, 1.0) if share else _padded(min(ys), max(ys))

    def place(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * (x - left) / (right - left)
        down = TOP + (HEIGHT - TOP - BOTTOM) * (high - min(max(y, low), high)) / (high - low)
        return f"{across:.1f},{down:.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="11" '
        f'font-family="system-ui, sans-serif" fill="currentColor"><title>{escape(title)}</title>'
    ]
    for part in range(5):
        y = low + (high - low) * part / 4
        (x1, at), (x2, _) = (place(x, y).split(",") for x in (left, right))
        lines.append(f'<line x1="{x1}" x2="{x2}" y1="{at}" y2="{at}" stroke="currentColor" stroke-opacity=".15"/>')
        label = f"{y:.0%}" if share else _number(y, high - low)
        lines.append(f'<text x="{LEFT - 5}" y="{float(at) + 4:.1f}" text-anchor="end">{label}</text>')
    for x, anchor in ((left, "start"), ((left + right) / 2, "middle"), (right, "end")):
        across = place(x, low).split(",")[0]
        lines.append(f'<text x="{across}" y="{HEIGHT - 7}" text-anchor="{anchor}">{_across(x)}</text>')
    for line in series:
        thin = max(1, -(-len(line.points) // MOST_POINTS))
        if line.band:
            edges = list(zip(line.points, line.band, strict=True))
            around = [place(x, y) for (x, _), (y, _) in edges] + [place(x, y) for (x, _), (_, y) in reversed(edges)]
            lines.append(f'<polygon points="{" ".join(around)}" fill="{line.color}" fill-opacity=".15"/>')
        drawn = [*line.points[:-1:thin], *line.points[-1:]]
        if len(drawn) == 1:
            x, y = place(*drawn[0]).split(",")
            lines.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{line.color}"/>')
        lines.append(
            f'<polyline points="{" ".join(place(*point) for point in drawn)}" fill="none" stroke="{line.color}" '
            f'stroke-width="{line.width}" stroke-linejoin="round"><title>{escape(line.label)}</title></polyline>'
        )
    return "\n".join([*lines, "</svg>"])


def tree_picture(
    points: Sequence[Sequence[tuple[float, float, bool]]], title: str, addresses: Sequence[str] = ()
) -> str:
    """Draws a training tree: a column a point, a dot a candidate, a line along what was committed.

    Args:
        points: for each, (return, advantage, committed) of its candidates; the better are higher, and green above
            their group, red below, grey where nothing was to be learned.
        addresses: where each group is looked at; its column leads there.
    """
    step, height = 56, 120
    width = step * len(points) + 20
    role = "group" if addresses else "img"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="{role}" '
        f'style="max-width: {width}px" font-size="11" fill="currentColor"><title>{escape(title)}</title>'
    ]
    dots: list[str] = []
    spine = [f"4,{height / 2:.0f}"]
    for column, members in enumerate(points):
        across = step * (column + 1) - 14
        order = sorted(range(len(members)), key=lambda at: -members[at][0])
        here = spine[-1]
        for rank, at in enumerate(order):
            _, advantage, committed = members[at]
            down = 10 + (height - 20) * (rank + 0.5) / len(members)
            color = "#8a92a0" if advantage == 0 else COLORS[2] if advantage > 0 else COLORS[4]
            x, y = here.split(",")
            lines.append(
                f'<line x1="{x}" y1="{y}" x2="{across}" y2="{down:.1f}" stroke="currentColor" stroke-opacity=".2"/>'
            )
            dots.append(f'<circle cx="{across}" cy="{down:.1f}" r="{6 if committed else 4}" fill="{color}"/>')
            if committed:
                spine.append(f"{across},{down:.1f}")
        if addresses:
            label = f"group {column + 1} of {len(points)}, {len(members)} replies"
            dots.append(
                f'<a href="{escape(addresses[column])}" aria-label="{label}"><rect x="{across - step / 2:.0f}" y="0" '
                f'width="{step}" height="{height}" fill="transparent"><title>{label}</title></rect></a>'
            )
    lines.append(f'<polyline points="{" ".join(spine)}" fill="none" stroke="{COLORS[0]}" stroke-width="2.5"/>')
    return "\n".join([*lines, *dots, "</svg>"])


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return (max(0.0, low - margin) if low >= 0 else low - margin), high + margin


def _number(value: float, span: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:.0f}k" if abs(value) < 1e6 or span < 1e5 else f"{value / 1e6:.2f}M"
    if 0 < span < 1e-4:
        return f"{value:.1e}" if value else "0"
    digits = 0 if span >= 8 else min(6, max(1, ceil(-log10(span / 8)))) if span else 4
    return f"{value:.{digits}f}"


def _across(x: float) -> str:
    """Returns the label of a step, or of another number of things; none between two."""
    return "" if x % 1 else f"{x:.0f}" if x < 10_000 else _number(x, x)
