"""Layers of bfloat16 networks: float32 sums where the learner scores, and products that take no hidden memory.

The learner scores under autocast. There only matrix products are in bfloat16; their results, embeddings and everything
between are float32. Otherwise each sum would be rounded to 8 bits, which loses most of what a young adapter adds, and
the learner would not see what the engine, which sums in float32, has sampled from.

On a processor PyTorch multiplies a batch of sequences as one matrix only if its memory is contiguous or a gradient is
wanted. Otherwise, as for the last token of each sequence before the output layer of a frozen network, it multiplies
each sequence with a copy of the weight of its own: for 32 prompts and 49,152 words, 1.8 GB that no tensor shows.
"""

from __future__ import annotations

import torch
from torch.nn.functional import linear


class HalfLinear(torch.nn.Linear):
    """A linear layer that multiplies its input (..., I) as one matrix (N, I), with a float32 result under autocast."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the layer's output (..., O) for states (..., I)."""
        return _whole(linear(states.flatten(0, -2), self.weight, self.bias).unflatten(0, states.shape[:-1]))


class HalfEmbedding(torch.nn.Embedding):
    """An embedding with a float32 result under autocast."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the embeddings (..., W) of ids (...)."""
        return _whole(super().forward(ids))


LAYERS = {torch.nn.Linear: HalfLinear, torch.nn.Embedding: HalfEmbedding}


def keep_sums(net: torch.nn.Module) -> None:
    """Replaces a bfloat16 network's linear layers and embeddings by those here; a float32 network stays as it is."""
    for part in net.modules():
        if (kind := LAYERS.get(type(part))) and part.weight.dtype == torch.bfloat16:
            part.__class__ = kind
        elif isinstance(part, torch.nn.LayerNorm):
            part.float()  # takes float32 and bfloat16; on a processor, a bfloat16 norm takes bfloat16 alone


def _whole(found: torch.Tensor) -> torch.Tensor:
    return found.float() if torch.is_autocast_enabled(found.device.type) else found
