"""Isolates code that uses global random generators: it gets its own state, and the old state is restored."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, ClassVar


class Sealed:
    """The random generators of one game. Wrap all that may draw: making it, beginning it, and every move.

    Libraries of games seed the global `random`, and numpy's, and draw from them between two moves. Without this, every
    draw of others would change the game, and the game all that others draw.
    """

    _held: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._random: Any = Random(seed).getstate()
        self._numpy: Any = None
        self._seed = seed
        self._begun = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Gives the game its own random generators while it lasts; nothing may be awaited meanwhile."""
        if Sealed._held:
            self._take_once()
            yield
            return
        outside = _states()
        self._take()
        try:
            yield
        finally:
            self._random, self._numpy = _states()
            _set(*outside)

    def _take(self) -> None:
        numpy = sys.modules.get("numpy")
        fresh = numpy.random.RandomState(self._seed % 2**32).get_state() if numpy and not self._numpy else None
        _set(self._random, self._numpy or fresh)

    def _take_once(self) -> None:
        if not self._begun:
            self._take()
        self._begun = True

    @classmethod
    @contextmanager
    def alone(cls) -> Iterator[None]:
        """Saves the exchange of states at every move, while one game is made and played and nothing else draws."""
        outside, cls._held = _states(), True
        try:
            yield
        finally:
            cls._held = False
            _set(*outside)


def _states() -> tuple[Any, Any]:
    """Returns the states of `random` and, if it is loaded, of numpy."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy.random.get_state() if numpy else None


def _set(chance: Any, numpys: Any) -> None:
    random.setstate(chance)
    if numpys is not None:
        sys.modules["numpy"].random.set_state(numpys)
