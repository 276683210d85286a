"""Records of the data in a run folder other than weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter

from coterie.config.settings import TrainConfig
from coterie.kernel.environment import Split
from coterie.kernel.group import Collected
from coterie.memory.store import Store

SOLVED = 2
"""Number of validations in a row that `train.stop_when_solved` asks for."""


@dataclass(frozen=True, slots=True)
class Played:
    """One task of a rollout: the place where the task is found again, its groups and, once there is any, credit.

    places: of each group, where it stood among those that were trained, or -1: it was not chosen.
    """

    split: Split
    index: int
    collected: Collected
    advantages: tuple[tuple[float, ...], ...] = ()
    places: tuple[int, ...] = ()


PLAYED: TypeAdapter[Played] = TypeAdapter(Played)


@dataclass(slots=True)
class Progress:
    """State of a run: all that a checkpoint holds beside weights and optimizers.

    step: updates made. best_step, best_success: the checkpoint validation prefers. budget: tokens
    and calls so far. memory: what roles remember. credit: what the algorithm remembers, once it has been asked.
    pending: the metrics of the last step, where it was left before its validation; a run that has not begun has
    step 0 to validate. dead_steps: the latest steps in a row without a live group. successes: of the latest
    validations, with their steps, so that one that is made again is there once.
    """

    step: int = 0
    pending: dict[str, int | float] | None = field(default_factory=lambda: {"step": 0})
    best_step: int = -1
    best_success: float = -1.0
    budget: dict[str, int] = field(default_factory=dict[str, int])
    memory: Store = field(default_factory=Store)
    credit: dict[str, Any] | None = None
    dead_steps: int = 0
    successes: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    def spent(self, train: TrainConfig) -> float:
        """Returns the share of the token budget that has been spent, 0 to 1; 0 without a budget."""
        if train.max_sampled_tokens is None:
            return 0.0
        return min(1.0, self.budget.get("sampled_tokens", 0) / train.max_sampled_tokens)

    def over(self, train: TrainConfig) -> bool:
        """Returns True if all steps have been made, the token budget has been spent, or the run ends early."""
        return self.step >= train.steps or self.spent(train) == 1.0 or bool(self.early(train))

    def validated(self, success: float) -> None:
        """Notes the success of a validation at the present step."""
        before = [(step, share) for step, share in self.successes if step < self.step]
        self.successes = [*before, (self.step, success)][-SOLVED:]

    def early(self, train: TrainConfig) -> str:
        """Returns the reason why the run ends before its last step, by the settings for that, or ""."""
        if train.stop_dead_steps is not None and self.dead_steps >= train.stop_dead_steps:
            return f"no group had different returns in {self.dead_steps} steps (train.stop_dead_steps)"
        bar, shares = train.stop_when_solved, [share for _, share in self.successes]
        if bar is not None and len(shares) == SOLVED and min(shares) >= bar:
            return f"{SOLVED} validations in a row solved {min(shares):.3f} or more (train.stop_when_solved)"
        return ""


class About(BaseModel, extra="allow"):
    """Content of about.json that a run needs to go on; the rest is for people."""

    exact: dict[str, str]
    versions: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    went_on_anyway: list[Any] = []
    lost_lines: list[int] = []
    steps_changed: list[Any] = []


PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)
METRICS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[str, int | float])
