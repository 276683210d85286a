"""Pictures of results as SVG text: panels of means with their intervals, and the parts of other pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LINE = 22
"""Pixels between two lines of a panel."""
BETTER, WORSE, UNSURE, PLAIN = "#1f6feb", "#d1242f", "#8c959f", "#111111"


@dataclass(frozen=True, slots=True)
class Dot:
    """A mean with its 95 % interval, and the label to its left."""

    label: str
    mean: float
    low: float
    high: float
    colour: str = BETTER


def picture(width: float, height: float, parts: Sequence[str]) -> str:
    """Returns a whole picture, on white."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif">',
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(
    x: float, y: float, words: str, *, size: int, bold: bool = False, anchor: str = "start", fill: str = PLAIN
) -> str:
    """Returns words at a place as SVG; anchor: start, middle or end of them is there."""
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}"{weight}>{escape(words)}</text>'


def panel(
    dots: Sequence[Dot | None], left: float, top: float, width: float, ticks: Sequence[float], *, zero: bool = False
) -> list[str]:
    """Returns means and intervals as SVG, a line each; None: an empty line.

    Args:
        ticks: values of the axis, in the dots' unit (shares of success); the first and the last are its ends, at which
            an interval is cut.
        zero: of differences, shown in points, with a strong line at 0; else shares are shown in percent.
    """
    first, last = ticks[0], ticks[-1]

    def across(value: float) -> float:
        return left + width * (min(max(value, first), last) - first) / (last - first)

    bottom = top + LINE * len(dots)
    parts: list[str] = []
    for tick in ticks:
        strong = zero and tick == 0
        stroke = 'stroke="#57606a" stroke-width="1.5"' if strong else 'stroke="#dddddd"'
        x = across(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}" {stroke}/>')
        told = f"{tick:.0%}" if not zero else f"{100 * tick:+.0f}" if tick else "0"
        parts.append(text(round(x, 1), bottom + 15, told, size=11, anchor="middle", fill="#444444"))
    for number, dot in enumerate(dots):
        if dot is None:
            continue
        y = top + LINE * (number + 0.5)
        low, high = (round(across(value), 1) for value in (dot.low, dot.high))
        parts += [
            text(left - 8, y + 4, dot.label, size=12, anchor="end"),
            f'<line x1="{low}" y1="{y:g}" x2="{high}" y2="{y:g}" stroke="{dot.colour}" stroke-width="2"/>',
            f'<circle cx="{across(dot.mean):.1f}" cy="{y:g}" r="4" fill="{dot.colour}"/>',
        ]
    return parts
