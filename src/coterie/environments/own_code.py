"""Code of a user's that a setting names: `FILE.py:FUNCTION` or `package.module:FUNCTION`."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from coterie.errors import nearest
from coterie.kernel.calls.inside import load, own_name
from coterie.kernel.mistakes import raised_at, said


def whole(name: str) -> str:
    """Returns a name with the absolute path of its file, which is then found from everywhere."""
    file, _, function = name.rpartition(":")
    return f"{Path(file).resolve()}:{function}" if file.endswith(".py") else name


def module_of(name: str, form: str) -> ModuleType:
    """Returns the module in which a function stands, as it is now: a file that is edited is another one.

    Args:
        form: how such a name is written, for whoever wrote another.

    Raises:
        ValueError: there is none, or no such function.
    """
    file, _, function = name.rpartition(":")
    if not file or not function.isidentifier():
        raise ValueError(f"'{name}' names no function; {form}")
    module = _loaded(file, Path(file).read_bytes() if Path(file).is_file() else b"")
    if not callable(getattr(module, function, None)):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{name}: there is no function {function}{nearest(function, there)}")
    return module


def content_of(file: str | None) -> str:
    """Returns the text of a module's file; nothing if it has none."""
    return Path(file).read_text(encoding="utf-8", errors="replace") if file else ""


@cache
def _loaded(file: str, content: bytes) -> ModuleType:
    """Returns a module, loaded under a name that no other has."""
    name = own_name(file, content) if file.endswith(".py") else file
    if file.endswith(".py") and not Path(file).is_file():
        raise ValueError(f"{file} does not exist; name a function as FILE.py:FUNCTION")
    if file.endswith(".py") and str(Path(file).parent) not in sys.path:
        sys.path.append(str(Path(file).parent))  # what lies beside it can be imported, and hides nothing installed
    try:
        load(name, file if file.endswith(".py") else None)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        where = "" if isinstance(error, SyntaxError) else f" ({raised_at(error, file)})"  # it tells its line
        raise ValueError(f"{file} does not import: {said(error)}{where}") from error
    return sys.modules[name]
