"""How weights are moved: settings of the optimizer, and the learning rate of a step. No torch."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from coterie.kernel.environment import Settings


class OptimizerConfig(Settings):
    """AdamW, one a policy, which may have settings of its own: `[policies.NAME.optimizer]`."""

    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Averaging of gradient and squared gradient."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the averaged squared gradient: where gradients are far below it, weights hardly move."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Largest gradient norm of a policy; longer ones are scaled down."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """What the rate does after the warm-up, until the last step."""
    min_lr_share: float = Field(default=0.0, ge=0, le=1)
    """Where the schedule ends, as a share of lr."""
    updates_per_step: int = Field(default=1, ge=1, le=4)
    """Optimizer steps of one rollout, each on a part of its groups."""
    tokens_per_microbatch: int = Field(default=2048, ge=1)
    """Tokens of a forward and backward, of policies trained side by side together; the gradient is the same."""
    checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about 1.4 times the time."""


def learning_rate(config: OptimizerConfig, step: int, total: int) -> float:
    """The rate of a step, 0 <= step < total.

    Raises:
        ValueError: total is not positive.
    """
    if total <= 0:
        raise ValueError(f"a schedule needs a positive number of steps, not {total}")
    if step < config.warmup_steps:
        return config.lr * (step + 1) / (config.warmup_steps + 1)
    done = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    falling = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[config.schedule]
    return config.lr * (config.min_lr_share + (1 - config.min_lr_share) * falling)
