"""The implementations of a decoding step: modules, a CUDA graph (`graphs`), or neither (`lean`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel


class Steps(Protocol):
    """Decoding of rows side by side: `start`, then `step` by step, and `keep` when some have ended.

    reads: tokens of prompts that are read at once.
    """

    reads: ClassVar[float]

    def start(
        self, ids: torch.Tensor, mask: torch.Tensor | None, repeat: torch.Tensor, room: int, head: int = 0
    ) -> torch.Tensor:
        """Reads prompts, from which rows go on.

        Args:
            ids: (P, T), padded before them.
            mask: (P, T), 0 where there is padding; None: there is none.
            repeat: (R,), each row's prompt.
            room: tokens that a row may take beside.
            head: tokens that all prompts begin with, which need be read only once.

        Returns:
            (R, V), what comes next in each row.
        """
        ...

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Takes one more token of each row, (R,). Returns what comes next, (R, V)."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some of the rows: their numbers, (K,)."""
        ...

    def clear(self) -> None:
        """Frees the memory that rows have taken."""
        ...

    @property
    def copies(self) -> Sequence[torch.Tensor]:
        """Weights that are kept beside the network's."""
        ...


def read(net: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, DynamicCache]:
    """Reads prompts by the library: returns logits after each, (P, V), and the cache. Arguments as in Steps.start."""
    cache, inputs = DynamicCache(config=net.config), dict[str, Any]()
    if mask is not None:
        inputs = {"attention_mask": mask, "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)}
    asked: Any = net
    return asked(input_ids=ids, past_key_values=cache, logits_to_keep=1, **inputs).logits[:, -1], cache


class Modules:
    """A network as the library runs it, with its cache."""

    reads: ClassVar[float] = math.inf

    def __init__(self, net: PreTrainedModel) -> None:
        self._net = net

    def start(
        self, ids: torch.Tensor, mask: torch.Tensor | None, repeat: torch.Tensor, room: int, head: int = 0
    ) -> torch.Tensor:
        """Reads prompts, see Steps; memory is taken token by token."""
        logits, self._cache = read(self._net, ids, mask)
        self._mask = mask
        self.keep(repeat)
        return logits[repeat]

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Takes one more token of each row, see Steps."""
        inputs: dict[str, Any] = {}
        if self._mask is not None:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(ids), 1)], dim=1)
            inputs = {"attention_mask": self._mask, "position_ids": self._mask.sum(dim=1, keepdim=True) - 1}
        return self._net(input_ids=ids[:, None], past_key_values=self._cache, **inputs).logits[:, -1]

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some of the rows, see Steps; by the one way that recurrent states have too."""
        self._cache.reorder_cache(rows)  # pyright: ignore[reportArgumentType]
        if self._mask is not None:
            self._mask = self._mask[rows]

    def clear(self) -> None:
        """Frees the memory that rows have taken, see Steps."""
        del self._cache

    @property
    def copies(self) -> Sequence[torch.Tensor]:
        """Copies of weights: none."""
        return ()
