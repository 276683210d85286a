"""Masks of packs: a token sees what comes before it in its own sequence, as far back as its layer looks.

A pack is a tree in depth-first order: after a token come all tokens that follow it in any sequence (its branch), and
then all others. So a token is visible to the tokens from itself to the end of its branch.

Layers differ in how far back a token looks: to the beginning, over a window, or to the beginning of its chunk.
Distances are measured between positions in a row's own sequence, not between places in the pack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Reach = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function from positions of queries (B, T, 1) and of keys (B, 1, T) to what is near enough, (B, T, T) bool."""


def kinds_of(config: Any) -> tuple[str, ...]:
    """Returns the kinds of attention that a network's layers have, each once.

    Args:
        config: of the text network.
    """
    if kinds := getattr(config, "layer_types", None):
        return tuple(sorted(set(kinds)))
    if getattr(config, "sliding_window", None):
        return ("sliding_attention",)
    if getattr(config, "attention_chunk_size", None):
        return ("chunked_attention",)
    return ("full_attention",)


def can_mask(config: Any) -> bool:
    """Returns True if a mask can describe what a token sees; it cannot if layers pass a state along tokens."""
    return {"full_attention", "sliding_attention", "chunked_attention"}.issuperset(kinds_of(config))


def sees_all(config: Any, longest: int) -> bool:
    """Returns True if every token sees all before it, in sequences of so many tokens."""
    reaches = {
        "full_attention": longest,
        "sliding_attention": getattr(config, "sliding_window", None),
        "chunked_attention": getattr(config, "attention_chunk_size", None),
    }
    return all((reaches.get(kind) or 0) >= longest for kind in kinds_of(config))


def attention_masks(
    config: Any, ends: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor | dict[str, torch.Tensor]:
    """Returns the additive mask of a layout: one, or one for each kind of layer where there are several.

    Args:
        config: of the text network, which a mask can describe.
        ends: (B, T), of each token's branch: the place after the last token that comes after it in a sequence.
        positions: (B, T), of each token in its own sequence.

    Returns:
        (B, 1, T, T) of dtype, 0 or its least number. A bool mask would be added as 0 and 1 by eager attention.
    """
    places = torch.arange(ends.shape[1], device=ends.device)
    seen = (places <= places[:, None]) & (places[:, None] < ends[:, None, :])
    masks = {
        kind: _additive(seen & _reach(kind, config)(positions[:, :, None], positions[:, None, :]), dtype)
        for kind in kinds_of(config)
    }
    return masks if len(masks) > 1 else next(iter(masks.values()))


def causal_mask(longest: int, first: int, device: torch.device) -> torch.Tensor:
    """Returns the additive mask of the tokens from `first` on, which see all before them, (1, 1, T - first, T)."""
    seen = torch.ones(longest - first, longest, dtype=torch.bool, device=device).tril(first)
    return _additive(seen[None], torch.float32)


def _reach(kind: str, config: Any) -> Reach:
    match kind:
        case "sliding_attention":
            return lambda query, key: query - key < config.sliding_window
        case "chunked_attention":
            return lambda query, key: query // config.attention_chunk_size == key // config.attention_chunk_size
        case _:
            return lambda query, key: torch.ones_like(query == key)


def _additive(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)
    return mask[:, None]
