"""Records of the data in a run folder other than weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter

from coterie.config.settings import TrainConfig
from coterie.kernel.environment import Split
from coterie.kernel.group import Collected
from coterie.memory.store import Store


@dataclass(frozen=True, slots=True)
class Played:
    """What one task of a rollout holds: where the task is found again, its groups and credit, once there is any.

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
    """Where a run is: all that a checkpoint holds beside weights and optimizers.

    step: updates made. best_step, best_success: the checkpoint validation prefers. budget: tokens
    and calls so far. memory: what roles remember. credit: what the algorithm remembers, once it has been asked.
    pending: the metrics of the last step, where it was left before its validation; a run that has not begun has
    step 0 to validate.
    """

    step: int = 0
    pending: dict[str, int | float] | None = field(default_factory=lambda: {"step": 0})
    best_step: int = -1
    best_success: float = -1.0
    budget: dict[str, int] = field(default_factory=dict[str, int])
    memory: Store = field(default_factory=Store)
    credit: dict[str, Any] | None = None

    def spent(self, train: TrainConfig) -> float:
        """The share of the token budget that has been spent, 0 to 1; 0 without a budget."""
        if train.max_sampled_tokens is None:
            return 0.0
        return min(1.0, self.budget.get("sampled_tokens", 0) / train.max_sampled_tokens)

    def over(self, train: TrainConfig) -> bool:
        """Whether all steps have been made, or the token budget has been spent."""
        return self.step >= train.steps or self.spent(train) == 1.0


class About(BaseModel, extra="allow"):
    """What about.json must hold for a run to go on; the rest is for people."""

    exact: dict[str, str]
    versions: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    went_on_anyway: list[Any] = []
    lost_lines: list[int] = []
    steps_changed: list[Any] = []


PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)
METRICS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[str, int | float])
