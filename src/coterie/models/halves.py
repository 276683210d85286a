"""Layers of a network in bfloat16 that compute what an update needs, on any device, and as little memory as they can.

Where the learner scores (under autocast), only products are in bfloat16: what they give is float32, as is everything
between them. Otherwise a sum is rounded to 8 bits, which eats most of what a young adapter adds, and the learner does
not see what the engine samples.

On a processor PyTorch multiplies a batch of sequences as one matrix only if its memory is contiguous or a gradient is
wanted. Otherwise, as for the last token of each sequence before the output layer of a frozen network, it multiplies
each sequence with a copy of the weight of its own: for 32 prompts and 49,152 words, 1.8 GB that no tensor shows.
"""

from __future__ import annotations

import torch
from torch.nn.functional import linear


class HalfLinear(torch.nn.Linear):
    """A linear layer that reads its input (..., I) as one matrix (N, I)."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns (..., O), in float32 under autocast."""
        return _whole(linear(states.flatten(0, -2), self.weight, self.bias).unflatten(0, states.shape[:-1]))


class HalfEmbedding(torch.nn.Embedding):
    """An embedding."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns (..., W) for ids (...), in float32 under autocast."""
        return _whole(super().forward(ids))


LAYERS = {torch.nn.Linear: HalfLinear, torch.nn.Embedding: HalfEmbedding}


def keep_sums(net: torch.nn.Module) -> None:
    """Gives a network in bfloat16 these layers; one in float32 stays as it is."""
    for part in net.modules():
        if (kind := LAYERS.get(type(part))) and part.weight.dtype == torch.bfloat16:
            part.__class__ = kind
        elif isinstance(part, torch.nn.LayerNorm):
            part.float()  # then it takes states of either type; on a processor one in bfloat16 takes no other


def _whole(found: torch.Tensor) -> torch.Tensor:
    return found.float() if torch.is_autocast_enabled(found.device.type) else found
