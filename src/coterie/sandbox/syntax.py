"""The syntax tree of what somebody wrote, from any thread.

Python 3.11 counts the depth of trees it builds in one place for all threads, and fails when two are built at once
("AST constructor recursion depth mismatch"): here one is built after the other, and without the garbage collector,
which may print a traceback, for which Python builds another. Its warnings are nobody's here.
"""

from __future__ import annotations

import ast
import gc
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ONE = threading.Lock()


def tree_of(source: str | bytes, mode: str = "exec") -> Any:
    """The tree of a program, or of an expression (mode "eval"); None where it is none."""
    with _ONE, warnings.catch_warnings(), _uncollected():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source, mode=mode)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


@contextmanager
def _uncollected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
