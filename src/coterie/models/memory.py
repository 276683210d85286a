"""The memory of a device: how much there is, and how much of it is free now."""

from __future__ import annotations

import torch

from coterie import ram

GIB = 1 << 30


def total_bytes(device: torch.device) -> int:
    """Returns all bytes that a device has; of a processor, those that this process may take."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else ram.total()


def free_bytes(device: torch.device) -> int:
    """Returns the bytes that a device has left for this process, what it has taken already not counted."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return ram.free()
