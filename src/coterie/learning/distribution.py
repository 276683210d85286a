"""The sampling distribution of a policy: one function that both the engine and the learner use.

If the two differed by a temperature or by one forbidden token id, every importance ratio would be wrong.
"""

from __future__ import annotations

import torch

UNITS = 2.0**52
"""Units of which probability 1 consists. Probabilities are added as whole numbers of units, so a sum is the same in any
order."""


def log_distribution(logits: torch.Tensor, temperature: torch.Tensor | float, vocabulary: int) -> torch.Tensor:
    """Returns the natural log-probabilities log_softmax(logits / temperature), in float32.

    Args:
        logits: (..., V), any float type.
        temperature: above 0; a number, or (..., 1).
        vocabulary: ids from here on are padding of the embedding, have probability 0 and are left out.

    Returns:
        (..., the lesser of V and vocabulary) float32.
    """
    return torch.log_softmax(logits[..., :vocabulary].float() / temperature, dim=-1)


def nucleus(logprobs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Returns the distribution kept by top-p, renormalised: the fewest tokens whose probabilities reach top_p.

    Args:
        logprobs: (B, V).
        top_p: in (0, 1]; 1 returns the input.

    Returns:
        (B, V), -inf outside the nucleus.

    Source:
        arXiv:1904.09751.
    """
    if top_p >= 1:
        return logprobs
    ordered, index = logprobs.sort(dim=-1, descending=True)
    shares = ordered.exp_().mul_(UNITS).long()
    del ordered
    before = shares.cumsum(dim=-1).sub_(shares)
    outside = torch.zeros_like(logprobs, dtype=torch.bool).scatter(-1, index, before >= int(top_p * UNITS))
    return torch.log_softmax(logprobs.masked_fill(outside, float("-inf")), dim=-1)


def inverse_cdf(logprobs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Returns one id a row: the first whose cumulated probability exceeds that row's uniform number.

    A row's choice depends on its own number alone, so a sample can be drawn again without the
    others of its wave.

    Args:
        logprobs: (B, V).
        uniform: (B,) in [0, 1), float64, on the CPU.

    Returns:
        (B,) int64, where logprobs are.
    """
    exact = "cpu" if logprobs.device.type == "mps" else logprobs.device  # mps has no float64
    cumulated = logprobs.to(exact).exp().mul_(UNITS).long().cumsum(dim=-1)
    threshold = (uniform.to(exact) * cumulated[:, -1]).long()
    found = torch.searchsorted(cumulated, threshold[:, None], right=True)[:, 0]
    return found.clamp_(max=logprobs.shape[-1] - 1).to(
        logprobs.device
    )  # the clamp matters only for NaN, and the learner refuses such a sample
