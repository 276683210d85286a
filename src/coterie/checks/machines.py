"""Machines that a run may be planned for: this one, and GPUs by name."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from coterie.errors import ConfigError, nearest
from coterie.models.memory import GIB, total_bytes

SIZES = {"cpu": 512, "mps": 2048, "cuda": 4096}
"""Sizes of the square matrices whose product says how fast a device is."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device. memory: bytes. float32, bfloat16: operations a second at best. bandwidth: bytes a second."""

    name: str
    kind: str
    memory: int
    float32: float
    bfloat16: float
    bandwidth: float


GPUS = {
    name: Machine(name, "cuda", int(gib * GIB), float32 * 1e12, bfloat16 * 1e12, bandwidth * 1e12)
    for name, gib, float32, bfloat16, bandwidth in (
        ("l4-24", 22.5, 30.3, 121, 0.30),
        ("rtx4090-24", 24.0, 82.6, 165, 1.01),
        ("l40s-48", 45.0, 91.6, 362, 0.86),
        ("a100-40", 39.6, 19.5, 312, 1.56),
        ("a100-80", 79.3, 19.5, 312, 2.04),
        ("h100-80", 79.6, 67, 989, 3.35),
        ("h200-141", 140.4, 67, 989, 4.8),
        ("b200-180", 179.0, 75, 2250, 7.7),
    )
}
"""GPUs by name, with the GiB that programs find there, and their makers' figures: dense TFLOP/s, and TB/s."""


def gpu(name: str) -> Machine:
    """Returns the GPU of a name.

    Raises:
        ConfigError: there is none of that name.
    """
    if (known := name.lower()) not in GPUS:
        raise ConfigError(
            f"unknown GPU '{name}'{nearest(known, GPUS)}; there are {', '.join(GPUS)}; for a processor run this on the "
            "machine itself, without --gpu"
        )
    return GPUS[known]


def here(device: str) -> Machine:
    """Returns a device of this machine; what it can do is measured, in a tenth of a second."""
    where = torch.device(device)
    name = f"{platform.machine()} processor, {torch.get_num_threads()} threads"
    if where.type == "cuda":
        name = torch.cuda.get_device_name(where)
    halves, singles = (_products(dtype, where) for dtype in (torch.bfloat16, torch.float32))
    return Machine(name, where.type, total_bytes(where), singles, halves, _copies(where))


def _products(dtype: torch.dtype, device: torch.device) -> float:
    size = SIZES[device.type]
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    return 2 * size**3 / _seconds(lambda: matrix @ matrix, device)


def _copies(device: torch.device) -> float:
    block = torch.ones(1 << 24, device=device)
    return 2 * block.nbytes / _seconds(block.clone, device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Returns the seconds of the fastest of a few tries: others may be at work here."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        work()
        if device.type != "cpu":
            torch.get_device_module(device).synchronize()
        best = min(best, time.perf_counter() - began)
    return best
