"""Dumps of slime's and miles': PyTorch files, read in another process, as they may unpack to any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def samples(file: str) -> Iterator[dict[str, Any]]:
    """Yields the samples of a dump: one object with a list of them. Only plain data is loaded; nothing in it runs.

    Raises:
        ValueError: it holds no such list.
        Exception: it holds more than plain data, or is no such file.
    """
    whole = torch.load(file, map_location="cpu", weights_only=True)
    found = whole.get("samples") if isinstance(whole, dict) else None
    if not isinstance(found, list) or not all(isinstance(sample, dict) for sample in found):
        raise ValueError("it has no list of samples, as slime's and miles' dumps have")
    yield from found
