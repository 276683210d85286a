"""Objects that exist once per process, such as a process pool. The first thread that asks creates the object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Once(Generic[R]):
    """A cache by positional arguments, like `functools.cache`, in which threads that ask at once make nothing twice."""

    def __init__(self, function: Callable[..., R]) -> None:
        self._function = function
        update_wrapper(self, function)
        self.forget()

    def __call__(self, *args: Any) -> R:
        """Returns the function's first result for these arguments."""
        if args not in self._made:
            with self._lock:
                if args not in self._made:
                    self._made[args] = self._function(*args)
        return self._made[args]

    def forget(self) -> None:
        """Forgets all results: in a fork of the process, they belong to the parent."""
        self._made: dict[tuple[Any, ...], R] = {}
        self._lock = threading.Lock()
