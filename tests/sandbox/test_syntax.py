"""Trees of what models write, built in many threads at once."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from coterie.syntax import tree_of

DEEP = "def f(x):\n    return " + "-(" * 60 + "x" + ")" * 60
WIDE = "x = [" + "(1, " * 50 + ")" * 50 + "]"


class Garbage:
    """What lets another thread go on when it is collected, as open files and sockets do."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0.0001)


@pytest.mark.slow
def test_trees_are_built_in_many_threads_at_once():
    """Python 3.11 counts depth for all threads together: "AST constructor recursion depth mismatch"."""

    def built(source: str) -> bool:
        Garbage()
        return tree_of(source) is not None

    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(built, [DEEP, WIDE] * 1500))
    finally:
        gc.set_threshold(*before)


class Told:
    """Garbage that builds a tree itself when it is collected, as who prints a traceback does."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse(DEEP)


def test_garbage_that_builds_a_tree_waits():
    before = gc.get_threshold()
    gc.freeze()  # what other tests left is not looked at again, 200 times
    try:
        for number in range(200):
            gc.collect()
            gc.set_threshold(10 + number)  # it is collected in the midst of what follows, somewhere
            Told()
            assert tree_of(DEEP) is not None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    assert gc.isenabled()


def test_what_is_no_program_is_none_and_its_warnings_are_nobodys(recwarn):
    assert tree_of("def f(:") is None
    assert tree_of("\0") is None
    assert tree_of("x is 1") is not None
    assert not recwarn
