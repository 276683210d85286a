"""Places of functions: the module and name by which a log knows one, and by which another process finds it."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

from coterie.errors import EnvError


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a worker finds a function. file: the module's, for one that cannot be imported by its name."""

    module: str
    file: str | None
    name: str


def named(function: Callable[..., Any]) -> str:
    """Returns a function's `module:name`, under which a log knows it.

    Raises:
        EnvError: it is not what has that name.
    """
    if not callable(function):
        raise EnvError(f"scene.call was given {function!r:.80}; give it the function and then its arguments, uncalled")
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<object>")
    if inspect.iscoroutinefunction(function):
        raise EnvError(f"scene.call runs plain functions, and {name} is a coroutine; write `def`, without async")
    if not module or "<" in name:
        raise EnvError(f"scene.call needs a module-level function, not {name}")
    with contextlib.suppress(AttributeError):
        if reduce(getattr, name.split("."), sys.modules.get(module)) == function:
            return f"{module}:{name}"
    raise EnvError(f"scene.call needs a module-level function, and {module}:{name} is not the one it was given")


def place_of(function: Callable[..., Any]) -> Place:
    """Returns the place where a worker finds a function.

    Raises:
        EnvError: it cannot be found from another process.
    """
    module, _, name = named(function).partition(":")
    home = sys.modules[module]
    file = home.__file__ and str(Path(home.__file__).absolute()) if "__file__" in vars(home) else None
    if module != "__main__":
        return Place(module, file, name)
    if home.__spec__ is not None:  # python -m package.module
        return Place(home.__spec__.name, file, name)
    if file is None or not _guarded(file):
        guard = ", or put what this script does under if __name__ == '__main__'" if file else ""
        raise EnvError(
            f"scene.call runs {name} in another process, which cannot import it from here; write it into a file of its "
            f"own and import it from there{guard}"
        )
    return Place("__coterie_main__", file, name)


@cache
def _guarded(script: str) -> bool:
    """Returns True if a script can be imported: a test of `__name__` guards what it does when it is run."""
    tree = ast.parse(Path(script).read_text(encoding="utf-8"))
    names = (node for statement in tree.body if isinstance(statement, ast.If) for node in ast.walk(statement.test))
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in names)
