"""Losses, a number a token. What they are summed over and divided by is in `batch.py`.

`logprobs[n]` belongs to token n of a flat list of trained tokens; ratio = exp(logprobs -
old_logprobs), where `old_logprobs` are the log-probabilities of the distribution that sampled
the token, as the engine reported them.
"""

from __future__ import annotations

import torch

from coterie.learning.loss import Loss


def token_losses(
    loss: Loss,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ref_logprobs: torch.Tensor | None = None,
) -> torch.Tensor:
    """The loss of each token: its policy term plus `loss.kl` times its KL term.

    Args: all (N,) float32; ref_logprobs only where loss.kl > 0.
    Returns: (N,).
    """
    if loss.surrogate == "clip":
        losses = clipped_surrogate(logprobs, old_logprobs, advantages, loss.epsilon, loss.epsilon_high)
    else:
        losses = policy_gradient(logprobs, advantages)
    if loss.kl:
        assert ref_logprobs is not None
        losses = losses + loss.kl * (logprobs - old_logprobs).exp() * kl_k3(logprobs, ref_logprobs)
    return losses


def clipped_surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    epsilon: float,
    epsilon_high: float,
) -> torch.Tensor:
    """-min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A), a token.

    Source: PPO, arXiv:1707.06347 eq. 7; the wider upper bound is DAPO's, arXiv:2503.14476 eq. 10.
    """
    ratio = (logprobs - old_logprobs).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantages)


def policy_gradient(logprobs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """-A log pi, a token: REINFORCE, exact while the weights are those that sampled."""
    return -advantages * logprobs


def kl_k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(policy || reference), a token: exp(-d) - 1 + d, d = logprobs - ref.

    Never negative, unbiased. Its own gradient is that of the forward KL; multiplied by the ratio,
    as in `token_losses`, the gradient is that of the reverse KL.
    Source: Schulman, "Approximating KL divergence" (2020).
    """
    difference = logprobs - ref_logprobs
    return torch.exp(-difference) - 1 + difference


def clip_share(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, loss: Loss
) -> torch.Tensor:
    """Whether the clip has cut a token's gradient, (N,) bool."""
    ratio = (logprobs - old_logprobs).exp()
    above = (ratio > 1 + loss.epsilon_high) & (advantages > 0)
    below = (ratio < 1 - loss.epsilon) & (advantages < 0)
    return above | below
