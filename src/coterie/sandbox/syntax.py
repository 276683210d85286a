"""The syntax tree of what somebody wrote, from any thread.

Python 3.11 counts the depth of trees it builds in one place for all threads, and fails when two are built at once
("AST constructor recursion depth mismatch"): here one is built after the other. Its warnings are nobody's here.
"""

from __future__ import annotations

import ast
import threading
import warnings
from typing import Any

_ONE = threading.Lock()


def tree_of(source: str, mode: str = "exec") -> Any:
    """The tree of a program, or of an expression (mode "eval"); None where it is none."""
    with _ONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source, mode=mode)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
