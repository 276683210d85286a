"""The tables: what a name in a config or on the command line stands for.

A new environment or algorithm is a file and a line here. One of a user's own is named by where
it lives: `my_env.py:MyEnv`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from coterie.environment import Settings
from coterie.errors import ConfigError
from coterie.seeds import seed_of

ENVIRONMENTS = {
    "plan_path": "coterie.environments.plan_path:PlanPath",
    "code": "coterie.environments.code:Code",
    "code_pair": "coterie.environments.code_pair:CodePair",
    "assistants": "coterie.environments.assistants:Assistants",
}
ALGORITHMS = {
    "at_grpo": "coterie.algorithms.at_grpo:ATGRPO",
    "grpo": "coterie.algorithms.grpo:GRPO",
    "mas_grpo": "coterie.algorithms.mas_grpo:MASGRPO",
    "magrpo": "coterie.algorithms.magrpo:MAGRPO",
    "joyagents": "coterie.algorithms.joyagents:JoyAgents",
    "joyagents_paper": "coterie.algorithms.joyagents:JoyAgentsPaper",
    "drmas": "coterie.algorithms.drmas:DrMAS",
    "c3": "coterie.algorithms.c3:C3",
}
ENGINES = {
    "transformers": "coterie.engines.transformers:TransformersEngine",
    "scripted": "coterie.engines.scripted:ScriptedEngine",
}
KINDS = {"environments": ENVIRONMENTS, "algorithms": ALGORITHMS, "engines": ENGINES}

USER_MODULE = "coterie_user_"
"""How modules loaded from a user's file are named, with a hash of its path."""

S = TypeVar("S", bound=Settings)


def at(home: str) -> Any:
    """What lives at `module:name`."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def summary(kind: str) -> dict[str, str]:
    """The names of a kind, each with the first line of its docstring."""
    lines: dict[str, str] = {}
    for name, home in KINDS[kind].items():
        lines[name] = (at(home).__doc__ or "").strip().splitlines()[0]
    return lines


def find(kind: str, name: str, table: dict[str, str], base: type[S]) -> type[S]:
    """The class a name stands for.

    Args: kind: for the message, "environment" or "algorithm". name: a key of the table, or `file.py:Class`.
    Raises: ConfigError: no such name, file or class, or it is not a subclass of `base`.
    """
    if name in table:
        return at(table[name])
    file, separator, attribute = name.rpartition(":")
    if not separator or not file.endswith(".py"):
        raise ConfigError(
            f"unknown {kind} '{name}'{nearest(name, table)}; there are {', '.join(table)}, or FILE.py:Class"
        )
    found = getattr(_module(Path(file)), attribute, None)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{kind} '{name}': {file} has no class {attribute} that is a coterie.{base.__name__}")
    return found


def nearest(name: str, among: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    close = difflib.get_close_matches(name, list(among), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def _module(file: Path):
    if not file.is_file():
        raise ConfigError(f"{file} does not exist; name your own class as FILE.py:Class")
    name = f"{USER_MODULE}{seed_of(str(file.resolve())):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # functions given to scene.call are found again by this name
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # a user's file may raise anything
            del sys.modules[name]
            raise ConfigError(f"{file} does not import: {type(error).__name__}: {error}") from error
    return sys.modules[name]
