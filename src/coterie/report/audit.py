"""An audit of saved rollouts: which groups compare what must not be compared, and what that does to advantages.

A group-relative advantage compares the reward of a reply with the rewards of other replies to the same prompt. If a
group mixes roles, turns or prompts, its baseline fits none of them. Replies to the easier prompt then get positive
advantages only because the prompt is easier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from coterie.algorithms.credit import standardize
from coterie.kernel.safe import one_line
from coterie.report.rollouts import RolloutRow, Rollouts, lots

SHOWN = 3
"""Number of mixed groups that are shown whole."""
WIDE = 40
"""Maximum number of characters of a name, a role or a turn."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A reply of a mixed group. was: its advantage as trained; apart: among replies of its kind, None: it is alone."""

    row: RolloutRow
    was: float
    apart: float | None


@dataclass(frozen=True, slots=True)
class Mixed:
    """A group that mixes prompts, roles or turns. what: those in which its replies differ."""

    group: str
    what: tuple[str, ...]
    replies: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings of an audit. lone: groups of one reply, compared with nothing. computed: advantages are ours."""

    rollouts: Rollouts
    groups: int
    lone: int
    mixed: tuple[Mixed, ...]
    computed: bool

    @property
    def ok(self) -> bool:
        """True if no group mixes."""
        return not self.mixed

    def as_json(self) -> dict[str, Any]:
        """Returns all findings as JSON data, without prompts."""
        return {
            "ok": self.ok,
            "source": self.rollouts.source,
            "grouped": self.rollouts.grouped,
            "rewarded": self.rollouts.rewarded,
            "replies": len(self.rollouts.rows),
            "without_reward": self.rollouts.passed,
            "groups": self.groups,
            "lone": self.lone,
            "mixed": [
                {
                    "group": mixed.group,
                    "what": mixed.what,
                    "replies": [
                        {"role": judged.row.role, "turn": judged.row.turn, "reward": judged.row.reward,
                         "was": judged.was, "apart": judged.apart}
                        for judged in mixed.replies
                    ],
                }
                for mixed in self.mixed
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = self.rollouts.rows
        passed = f", {self.rollouts.passed} without a reward passed over" if self.rollouts.passed else ""
        lines = [
            f"{self.rollouts.source}: {len(rows)} replies{passed}",
            f"  {self.rollouts.grouped}",
            f"  {self.rollouts.rewarded}",
            f"  {self.groups} groups, {len(self.mixed)} mixed"
            + (f", {self.lone} of one reply, which is compared with nothing" if self.lone else ""),
        ]
        if not self.mixed:
            what = "roles, turns or prompts" if any(row.turn for row in rows) else "roles or prompts"
            return "\n".join([*lines, f"no group mixes {what}"])
        kinds = {kind: sum(kind in mixed.what for mixed in self.mixed) for kind in KINDS}
        lines.append("  they mix " + ", ".join(f"{kind} ({count})" for kind, count in kinds.items() if count))
        replies = [judged for mixed in self.mixed for judged in mixed.replies]
        alone = sum(judged.apart is None for judged in replies)
        others = [judged for judged in replies if judged.apart is not None]
        turned = sum((judged.apart or 0.0) * judged.was < 0 for judged in others)
        idle = sum(not judged.apart and judged.was != 0 for judged in others)
        lines.append(
            f"of {len(replies)} replies in them, if each is compared only with replies of its role to its prompt: "
            f"{turned} get an advantage of the opposite sign, {idle} an advantage of 0, because the others earned the "
            f"same, and {alone} have no other reply to be compared with"
        )
        if self.computed:
            lines.append("(the file has no advantages: both are (r - mean) / (standard deviation + 1e-6), of rewards)")
        for mixed in sorted(self.mixed, key=_harm, reverse=True)[:SHOWN]:
            lines += [
                "",
                f"group {one_line(mixed.group)[:WIDE]}: mixes {', '.join(mixed.what)}",
                *_table(mixed.replies),
            ]
        if len(self.mixed) > SHOWN:
            lines += ["", f"and {len(self.mixed) - SHOWN} more; all with --json"]
        return "\n".join(lines)


KINDS = {"prompts": "prompt", "roles": "role", "turns": "turn"}
"""Kinds of mixing, and the field of a row that tells each."""


def audit(rollouts: Rollouts) -> Audit:
    """Audits every group of some rollouts."""
    groups = list(lots(rollouts.rows))
    mixed = [found for rows in groups if (found := _mixed(rows))]
    lone = sum(len(rows) == 1 for rows in groups)
    computed = any(judged.row.advantage is None for each in mixed for judged in each.replies)
    return Audit(rollouts, len(groups), lone, tuple(mixed), computed)


def _mixed(rows: Sequence[RolloutRow]) -> Mixed | None:
    """Returns the findings on a group that mixes; None if its replies may be compared."""
    if len({_kind(row) for row in rows}) == 1:
        return None
    what = tuple(kind for kind, name in KINDS.items() if len({getattr(row, name) for row in rows}) > 1)
    was = standardize([row.reward for row in rows])
    saved = [row.advantage for row in rows]
    before = was if None in saved else [advantage or 0.0 for advantage in saved]
    order = sorted(range(len(rows)), key=lambda at: (rows[at].role, rows[at].turn, rows[at].prompt))
    order.sort(key=lambda at: _kind(rows[at]))
    apart: dict[int, float | None] = {}
    for _, lot in groupby(order, key=lambda at: _kind(rows[at])):
        those = list(lot)
        credit = standardize([rows[at].reward for at in those]) if len(those) > 1 else [None]
        apart |= dict(zip(those, credit, strict=True))
    return Mixed(rows[0].group, what, tuple(Judged(rows[at], before[at], apart[at]) for at in order))


def _kind(row: RolloutRow) -> tuple[str, str]:
    """Returns the role and prompt of a reply: those that share both may be compared, whichever turn they come in."""
    return row.role, row.prompt


def _harm(mixed: Mixed) -> float:
    """Returns the distance of a group's advantages from what they should be, summed."""
    return sum(abs(judged.was - (judged.apart or 0.0)) for judged in mixed.replies)


def _table(replies: Sequence[Judged]) -> list[str]:
    """Returns a table with one line per reply; prompts by number."""
    prompts = {prompt: at for at, prompt in enumerate(dict.fromkeys(judged.row.prompt for judged in replies))}
    rows = [("role", "turn", "prompt", "reward", "advantage", "apart")]
    for judged in replies:
        apart = "alone" if judged.apart is None else f"{judged.apart:+.2f}"
        role, turn = one_line(judged.row.role)[:WIDE], one_line(judged.row.turn)[:WIDE]
        named = role or "-", turn or "-", f"#{prompts[judged.row.prompt] + 1}"
        rows.append((*named, f"{judged.row.reward:.4g}", f"{judged.was:+.2f}", apart))
    wide = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, wide, strict=True)) for row in rows]
