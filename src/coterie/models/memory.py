"""The memory of a device: how much there is, and how much of it is free now."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

GIB = 1 << 30
LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where Linux says what a container may take, and what it has taken: of the second version, of the first."""


def total_bytes(device: torch.device) -> int:
    """All that a device has; of a processor, what this process may take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _limits())])


def free_bytes(device: torch.device) -> int:
    """What a device has left for this process, what it has taken already not counted."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(0, min([psutil.virtual_memory().available, *(limit - taken for limit, taken in _limits())]))


def _limits() -> list[tuple[int, int]]:
    """Limits of this process's container with what it has taken, where there are any."""
    found: list[tuple[int, int]] = []
    for limit, taken in LIMITS:
        try:
            found.append((int(Path(limit).read_text()), int(Path(taken).read_text())))
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
    return found
