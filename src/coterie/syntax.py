"""Parses source text into a syntax tree, safely from any thread.

Python 3.11 counts the depth of trees in one variable for all threads, and fails if two are built at once ("AST
constructor recursion depth mismatch"). So this module builds one tree after the other. It also disables the garbage
collector, which may print a traceback, for which Python builds another tree. Warnings of the parser are suppressed.
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
    """Returns the tree of a program, or of an expression (mode "eval"); None if it does not parse."""
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
