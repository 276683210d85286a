"""The summary of a run: common questions, a one-line answer to each, and where to see the details.

It is computed only from metrics.jsonl, so that the viewer, the report and the terminal show the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coterie.report.diagnose import CEILING, ENOUGH, LAZY_POINTS, concerns

Line = Mapping[str, float]
Mark = Literal["good", "bad", "open", "told"]
Place = Literal["curves", "warnings", "roles", "rollouts", "cost"]
"""The page of a run that shows what an answer rests on."""


BLOCKS = "▁▂▃▄▅▆▇█"
"""Blocks that draw shares: each is an eighth more of the way to 1."""
LONGEST = 24
"""Maximum number of characters of a curve."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A question about a run with its answer. mark: good or bad; open: not known yet; told: neither good nor bad."""

    question: str
    text: str
    mark: Mark
    place: Place


def story(lines: Sequence[Line], roles: Sequence[str], steps: int, probe: Line | None = None) -> list[Conclusion]:
    """Returns the answers to the common questions about a run, the most telling first.

    Args:
        lines: of metrics.jsonl, from the first.
        roles: the team's.
        steps: that the run is to make.
        probe: metrics of muted roles that were measured later than the run's own, named as in metrics.jsonl.
    """
    return [
        _learned(lines),
        *_roles([*lines, probe] if probe else lines, roles),
        _wrong(lines, roles),
        Conclusion("What does it say?", "Read its episodes, and the trees it learned from.", "told", "rollouts"),
        _cost(lines, steps),
    ]


def glance(lines: Sequence[Line], roles: Sequence[str], steps: int) -> list[str]:
    """Returns the story as lines of a terminal: the curve of validation, and each answer that needs no page."""
    shares = [line["validation/success"] for line in lines if "validation/success" in line]
    curve = [f"validation {shares[0]:.3f} {sparkline(shares)} {shares[-1]:.3f}"] if len(shares) > 1 else []
    told = (answer for answer in story(lines, roles, steps) if answer.place != "rollouts")
    return [*curve, *(f"{answer.question} {answer.text}" for answer in told)]


def sparkline(values: Sequence[float]) -> str:
    """Returns shares as a curve of blocks from 0 to 1, the latest `LONGEST` of them."""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[min(top, max(0, int(value * len(BLOCKS))))] for value in values[-LONGEST:])


def _learned(lines: Sequence[Line]) -> Conclusion:
    question = "Did it learn?"
    validated = [line for line in lines if "validation/success_low" in line]
    if not validated:
        return Conclusion(question, "It has not been validated yet.", "open", "curves")
    first, last = validated[0], validated[-1]
    best = max(reversed(validated), key=lambda line: line["validation/success"])
    start = f"{first['validation/success']:.1%} of validation tasks"
    if len(validated) == 1:
        return Conclusion(question, f"It solved {start} at the start; nothing later is known yet.", "open", "curves")
    low, high = best["validation/success_low"], best["validation/success_high"]
    reached = f"{best['validation/success']:.1%} ({low:.1%} to {high:.1%}) at step {best['step']:.0f}"
    fallen = last["validation/success_high"] < low
    since = f" Since then it has fallen to {last['validation/success']:.1%}; the best checkpoint is kept."
    if low > first["validation/success_high"]:
        text = f"Yes: it solved {start} at the start and {reached}.{since if fallen else ''}"
        return Conclusion(question, text, "bad" if fallen else "good", "curves")
    if last["validation/success_high"] < first["validation/success_low"]:
        text = f"No, it has unlearned: it solved {start} at the start and {last['validation/success']:.1%} now."
        return Conclusion(question, text, "bad", "curves")
    if first["validation/success"] >= CEILING:
        text = f"There was little to learn: it solved {start} at the start already, and at best {reached}."
        return Conclusion(question, text, "told", "curves")
    text = f"The difference may be chance: it solved {start} at the start and at best {reached}."
    if best["validation/success"] <= first["validation/success"]:
        text = f"Not so far: it solved {start} at the start, and never more since."
    return Conclusion(question, text, "bad", "curves")


def _roles(lines: Sequence[Line], roles: Sequence[str]) -> Iterator[Conclusion]:
    """Yields an answer that tells the cost of muting each role, by the latest probe."""
    if len(roles) < 2:
        return
    question, told, costs = "Does every role earn its place?", list[str](), list[tuple[float, float]]()
    measured = list[float]()
    for role in roles:
        key = f"mute/{role}/change"
        probe = next((line for line in reversed(lines) if key in line), None)
        if probe is not None:
            low, high = 100 * probe[f"{key}_low"], 100 * probe[f"{key}_high"]
            told.append(f"without {role} {100 * probe[key]:+.1f} points ({low:+.1f} to {high:+.1f})")
            costs.append((-high / 100, -low / 100))
            measured.append(probe["step"])
    if not told:
        text = "Not measured yet: it is what muting each role costs (coterie eval RUN --mute ROLE)."
        yield Conclusion(question, text, "open", "roles")
        return
    idle, surely = any(most < LAZY_POINTS for _, most in costs), all(least > 0 for least, _ in costs)
    mark: Mark = "bad" if idle else "good" if surely and len(costs) == len(roles) else "open"
    verdict = {"bad": "No", "good": "Yes", "open": "Not known for every role"}[mark]
    when = " and ".join(f"{step:.0f}" for step in sorted({*measured}))
    yield Conclusion(question, f"{verdict}. Change of success at step {when}: {'; '.join(told)}.", mark, "roles")


def _wrong(lines: Sequence[Line], roles: Sequence[str]) -> Conclusion:
    question, now = "Is anything wrong?", concerns(lines, roles)
    made = sum("groups/total" in line for line in lines)
    if not now and made < ENOUGH:
        text = f"No warning holds; those about the balance of roles look back on {ENOUGH} steps, and there are {made}."
        return Conclusion(question, text, "open", "warnings")
    if not now:
        return Conclusion(question, "No warning holds at the last step.", "good", "warnings")
    return Conclusion(question, " ".join(f"{one.text[:1].upper()}{one.text[1:]}." for one in now), "bad", "warnings")


def _cost(lines: Sequence[Line], steps: int) -> Conclusion:
    """Returns an answer that tells the steps, the tokens, and where the time went."""
    question = "What did it cost?"
    made = int(max((line["step"] for line in lines), default=0))
    tokens = max((line["budget/sampled_tokens"] for line in lines if "budget/sampled_tokens" in line), default=0)
    spent = {
        name: sum(line.get(f"time/{name}", 0.0) for line in lines) for name in ("step", "rollout", "update", "eval")
    }
    whole = spent["step"] + sum(line.get("time/eval", 0.0) for line in lines if "time/step" not in line)
    text = f"{made} of {steps} steps, {tokens:,.0f} sampled tokens, {duration(whole)}"
    if whole:
        shares = [f"{name} {spent[name] / whole:.0%}" for name in ("rollout", "update", "eval") if spent[name]]
        text += f": {', '.join(shares)}" if shares else ""
    return Conclusion(question, f"{text}.", "told", "cost")


def duration(seconds: float) -> str:
    """Returns seconds as people say them: in seconds, minutes or hours."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
