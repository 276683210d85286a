"""Trees of what models write, built in many threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from coterie.syntax import tree_of

DEEP = "def f(x):\n    return " + "-(" * 60 + "x" + ")" * 60


def test_trees_are_built_in_many_threads_at_once():
    """Python 3.11 counts depth for all threads together: "AST constructor recursion depth mismatch"."""
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(tree_of, [DEEP, "x = [" + "(1, " * 50 + ")" * 50 + "]"] * 1500))
    assert all(trees)


def test_what_is_no_program_is_none_and_its_warnings_are_nobodys(recwarn):
    assert tree_of("def f(:") is None
    assert tree_of("\0") is None
    assert tree_of("x is 1") is not None
    assert not recwarn
