"""Garbage collection while a team trains."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def light_collection() -> Iterator[None]:
    """Collects garbage rarely, and not among what the libraries have loaded.

    An episode's many small events trigger the collector, and most of what it walks is torch's.
    """
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
