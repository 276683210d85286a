"""The settings of the optimizer and the learning rate of a step. This module does not import torch."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from coterie.kernel.environment import Settings


class OptimizerConfig(Settings):
    """Settings of AdamW. Each policy has its own optimizer; `[policies.NAME.optimizer]` overrides these settings."""

    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the moving averages of the gradient and the squared gradient (Adam's beta1 and beta2)."""
    eps: float = Field(default=1e-8, gt=0)
    """Adam's epsilon, added to the root of the averaged squared gradient. Weights hardly change if gradients are far
    below it."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm of a policy. Larger gradients are scaled down to it."""
    warmup_steps: int = Field(default=0, ge=0)
    """Number of warm-up steps, in which the learning rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Schedule of the learning rate from the warm-up to the last step."""
    min_lr_share: float = Field(default=0.0, ge=0, le=1)
    """Final learning rate, as a share of lr."""
    updates_per_step: int = Field(default=1, ge=1, le=4)
    """Number of optimizer steps per rollout. Each uses a part of the rollout's groups."""
    tokens_per_microbatch: int = Field(default=2048, ge=1)
    """Maximum tokens per micro-batch, summed over policies that are trained in parallel. It does not change the
    gradient."""
    checkpointing: bool = False
    """Recompute activations in the backward pass. This needs less memory and about 1.4 times the time."""


def learning_rate(config: OptimizerConfig, step: int, total: int, spent: float = 0.0) -> float:
    """Returns the learning rate of a step, 0 <= step < total.

    Args:
        spent: share of a token budget that was spent before the step, 0 to 1. The schedule follows whichever of the two
            is further, steps or tokens, from the end of the warm-up.

    Raises:
        ValueError: total is not positive.
    """
    if total <= 0:
        raise ValueError(f"a schedule needs a positive number of steps, not {total}")
    if step < config.warmup_steps:
        return config.lr * (step + 1) / (config.warmup_steps + 1)
    warm = spent * config.warmup_steps / max(1, step)  # about what was spent while the rate rose
    left = max(1, total - config.warmup_steps), max(1e-9, 1 - warm)
    done = max((step - config.warmup_steps) / left[0], min(1.0, (spent - warm) / left[1]))
    falling = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[config.schedule]
    return config.lr * (config.min_lr_share + (1 - config.min_lr_share) * falling)
