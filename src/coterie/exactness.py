"""What the same numbers rest on: versions, settings, files. A run that goes on compares it, `Run.check_exact`."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import linecache
import sys
from importlib import metadata
from importlib.util import resolve_name
from pathlib import Path

from coterie.config import Config
from coterie.environment import Settings

EXACT = ("coterie", "torch", "transformers", "tokenizers")
"""Packages of which another version may compute something else."""
MENDS = {
    **{name: f"install that version of {name}" for name in EXACT},
    "threads": "set OMP_NUM_THREADS to that number",
    "device": "use that device",
    "environment": "restore its files",
    "algorithm": "restore its file",
    "config": "restore config.toml",
    "policy": "restore that model",
    "metrics.jsonl": "put that file back",
}
"""What makes a run exact again, by the first word of what differs."""


def exactness(config: Config) -> dict[str, str]:
    """What the same numbers rest on, where no device is asked: versions, settings, and files.

    An environment's and an algorithm's files are those of their classes, the files of one's own that these import,
    and those that settings name.
    """
    tables = config.tables()
    tables["train"] = {key: value for key, value in tables["train"].items() if key != "steps"}
    tables["policies"] = {name: policy.template for name, policy in config.policies.items()}  # their models: by content
    return {
        **{name: metadata.version(name) for name in EXACT},
        "config": hashlib.sha256(repr(sorted(tables.items())).encode()).hexdigest()[:12],
        "environment": _source(config.environment),
        "algorithm": _source(config.algorithm),
    }


def _source(settings: Settings) -> str:
    """A digest of the files that a record of settings is made from."""
    kinds = [kind for kind in type(settings).__mro__ if issubclass(kind, Settings) and kind is not Settings]
    waiting = {file for kind in kinds if (file := inspect.getsourcefile(kind))}
    files: set[str] = set()
    while waiting:
        file = waiting.pop()
        files.add(file)
        waiting |= _imported(file) - files
    named = [value for _, value in sorted(settings) if isinstance(value, str) and value]
    digest = hashlib.sha256()
    for _, content in sorted((Path(file).name, _content(file)) for file in files):  # wherever they lie
        digest.update(content)
    for file in named:
        with contextlib.suppress(OSError):  # most strings name no file
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:12]


def _imported(file: str) -> set[str]:
    """Files of one's own that a file of one's own imports: nothing that is installed."""
    if _installed(file) or not file.endswith(".py"):  # what is compiled is read whole, and imports unseen
        return set()
    packages = (one.__package__ for one in list(sys.modules.values()) if getattr(one, "__file__", 0) == file)
    package = next(packages, "") or ""
    names: set[str] = set()
    for node in ast.walk(ast.parse(_content(file))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # a relative one that the file tried, and could not
                home = resolve_name("." * node.level + (node.module or ""), package)
                names |= {f"{home}.{alias.name}" for alias in node.names}  # a name may be a module
    whole = {".".join(parts[:end]) for parts in (name.split(".") for name in names) for end in range(1, len(parts) + 1)}
    homes = (getattr(sys.modules.get(name), "__file__", None) for name in whole)
    return {home for home in homes if home and not _installed(home)}


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:  # a cell of a notebook: Python knows its text, and there is no file
        return "".join(linecache.getlines(file)).encode()


def _installed(file: str) -> bool:
    return any(map(Path(file).is_relative_to, (sys.prefix, sys.base_prefix, Path(__file__).parent)))
