"""What draws from the process's global generators is given one of its own, and leaves them as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any


class Sealed:
    """The chance of one game. Wrap all that may draw: making it, beginning it, and every move.

    Libraries of games seed the global `random`, and numpy's, and draw from them between two moves. Without this, every
    draw of others would change the game, and the game all that others draw.
    """

    def __init__(self, seed: int) -> None:
        self._random: Any = Random(seed).getstate()
        self._numpy: Any = None
        self._seed = seed

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """While it lasts, nothing may be awaited."""
        numpy = sys.modules.get("numpy")
        outside = random.getstate(), numpy.random.get_state() if numpy else None
        random.setstate(self._random)
        if numpy:
            numpy.random.set_state(self._numpy or numpy.random.RandomState(self._seed % 2**32).get_state())
        try:
            yield
        finally:
            self._random = random.getstate()
            random.setstate(outside[0])
            if numpy:
                self._numpy = numpy.random.get_state()
                numpy.random.set_state(outside[1])
