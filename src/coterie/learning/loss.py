"""What a loss is: the record that the learner reads. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Surrogate = Literal["clip", "policy_gradient"]
Denominator = Literal["tokens", "sequences", "tasks"]


@dataclass(frozen=True, slots=True)
class Loss:
    """What the learner minimises; see `learning/losses.py` for the formulas.

    surrogate: clipped importance ratio, or plain policy gradient. epsilon, epsilon_high: the
    ratio's bounds 1 - epsilon and 1 + epsilon_high. kl: weight of the k3 estimate of KL to the
    starting weights; 0: no reference is kept. denominator: what a policy's sum is divided by,
    counted over its whole optimizer step; see `learning/batch.py`.
    """

    surrogate: Surrogate = "clip"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    kl: float = 0.0
    denominator: Denominator = "tokens"
