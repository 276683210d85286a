"""Measures the memory of a computation by counting the tensors that it creates, on any device.

Tensors without data, as in `shapes`, count like others. So a network that does not fit on this machine can be measured.
Temporary memory of library kernels and fragmentation of the allocator are not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

LOGITS_MEMORY = 1 << 30
"""Bytes that logits and what is computed of them may take: those of more tokens are looked at in parts."""
LOGIT_BYTES = 24
"""Bytes of one logit: in float32, masked, divided and normalised, or its probability as whole numbers, summed up."""


def at_once(vocabulary: int) -> int:
    """Returns the number of tokens whose logits are looked at at once."""
    return max(1, LOGITS_MEMORY // (LOGIT_BYTES * vocabulary))


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns a number for the memory that a tensor looks into, valid as long as that is there, and its bytes."""
    storage = tensor.untyped_storage()
    return storage._cdata, storage.nbytes()  # noqa: SLF001  (a tensor without numbers has no address)


class Meter(TorchDispatchMode):
    """A counter of the bytes of all tensors that are made while it is entered.

    live: of those that are there now. peak: the most that were there at one time.

    Args:
        known: tensors that were there before: what looks into them is not counted.
    """

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._sizes: dict[int, int] = {storage_of(tensor)[0]: 0 for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._count, made)
        return made

    def _count(self, tensor: torch.Tensor) -> None:
        key, size = storage_of(tensor)
        if key not in self._sizes:
            self._sizes[key] = size
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(tensor.untyped_storage(), self._forget, key)

    def _forget(self, storage: int) -> None:
        self.live -= self._sizes.pop(storage)
