"""Warnings about a run: roles that learn nothing, earn nothing or drown the others.

They are read off metrics.jsonl alone, so a display, a report and a resumed run see the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

Line = Mapping[str, float]
WINDOW = 20
"""Steps that a warning looks back on."""
FEW_LIVE = 0.1
"""Share of live groups below which groups are mostly dead."""
DOMINANT = 0.9
"""Share of the gradient, or of the advantage, above which a role is dominant."""
LAZY_POINTS = 0.02
"""A role is lazy when muting it surely costs less success than this."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A warning. role: whom it is about, or "" for the whole team. advice: what to do."""

    kind: Literal["dead", "lazy", "dominant", "mostly_dead", "no_memory"]
    role: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}: {self.advice}"


def concerns(lines: Sequence[Line], roles: Sequence[str]) -> list[Concern]:
    """What is wrong at the last of a run's lines, by role in the order given.

    Args: lines: of metrics.jsonl; the latest probe that muted roles and the last `WINDOW` steps are
        enough. roles: the team's.
    """
    steps = [line for line in lines if "groups/total" in line][-WINDOW:]
    found = [one for role in roles for one in _dead(role, steps)]
    dead = {one.role for one in found}
    alive = [role for role in roles if role not in dead]
    if len(steps) == WINDOW:
        for role in alive:
            found += _dominant(role, steps, [other for other in alive if other != role])
        if alive:
            found += _mostly_dead(steps)
        found += _no_memory(steps)
    for role in alive:
        found += _lazy(role, lines)
    return found


class Watch:
    """Sees a run's lines one by one and says what arises."""

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._recent: deque[Line] = deque(maxlen=WINDOW)
        self._probe: Line = {}
        self._known: set[tuple[str, str]] = set()

    def see(self, line: Line) -> list[Concern]:
        """The concerns that this line raises and the one before did not."""
        if any(key.startswith("mute/") for key in line):
            self._probe = line
        if "groups/total" in line:
            self._recent.append(line)
        now = concerns([self._probe, *self._recent], self._roles)
        new = [one for one in now if (one.kind, one.role) not in self._known]
        self._known = {(one.kind, one.role) for one in now}
        return new


def history(lines: Sequence[Line], roles: Sequence[str]) -> list[tuple[int, Concern]]:
    """Each concern with the step at which it arose; one that passes and comes back is there twice."""
    watch = Watch(roles)
    return [(int(line["step"]), one) for line in lines for one in watch.see(line)]


def _dead(role: str, steps: Sequence[Line]) -> list[Concern]:
    if len(steps) < WINDOW or any(line.get(f"role/{role}/live_groups", 0) for line in steps):
        return []
    return [
        Concern(
            "dead", role, f"role '{role}' is dead: no group of its replies differed in return for {WINDOW} steps",
            "unless success is at its ceiling, check that what it says can change its reward (coterie play RUN --step "
            "STEP --tree), then raise num_generations or the temperature",
        )
    ]  # fmt: skip


def _dominant(role: str, steps: Sequence[Line], others: Sequence[str]) -> list[Concern]:
    """others: the roles that are not dead; where there are none, dominance says nothing new."""
    for what in ("gradient", "advantage"):
        shares = [line[f"role/{role}/{what}_share"] for line in steps if f"role/{role}/{what}_share" in line]
        if others and len(shares) == len(steps) and min(shares) > DOMINANT:
            return [
                Concern(
                    "dominant", role, f"role '{role}' is dominant: {fmean(shares):.0%} of the {what} is its own",
                    "give the roles policies of their own, or rewards of like size",
                )
            ]  # fmt: skip
    return []


def _mostly_dead(steps: Sequence[Line]) -> list[Concern]:
    live = sum(line["groups/live"] for line in steps) / max(1, sum(line["groups/total"] for line in steps))
    if live >= FEW_LIVE:
        return []
    return [
        Concern(
            "mostly_dead", "", f"{1 - live:.0%} of groups had equal returns over {len(steps)} steps",
            "most of the rollout teaches nothing: stop if success is near its ceiling, else use tasks the team solves "
            "sometimes, more replies a group, or a higher temperature",
        )
    ]  # fmt: skip


def _no_memory(steps: Sequence[Line]) -> list[Concern]:
    if not all(line.get("memory/skipped") for line in steps):
        return []
    return [
        Concern(
            "no_memory", "", f"memory learned nothing in {len(steps)} steps",
            "a step of fewer than 16 episodes, or of episodes that all end alike, tells nothing of notes: raise "
            "train.tasks_per_step, or use tasks the team solves sometimes",
        )
    ]  # fmt: skip


def _lazy(role: str, lines: Sequence[Line]) -> list[Concern]:
    key = f"mute/{role}/change"
    probe = max((line for line in lines if key in line), key=lambda line: line["step"], default=None)
    if probe is None or -probe[f"{key}_low"] >= LAZY_POINTS:
        return []
    return [
        Concern(
            "lazy", role,
            f"role '{role}' is lazy: muting it at step {int(probe['step'])} changed success by "
            f"{100 * probe[key]:+.1f} points, and costs less than {100 * LAZY_POINTS:.0f} at 95 %",
            "leave the role out, or give it something that the others cannot see or do",
        )
    ]  # fmt: skip
