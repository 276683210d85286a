"""What the same numbers rest on: versions, settings, files. A run that goes on compares it, `Run.check_exact`."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import sys
from importlib import metadata
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
    for file in [*sorted(files, key=lambda file: Path(file).name), *named]:
        with contextlib.suppress(OSError):  # most strings name no file
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:12]


def _imported(file: str) -> set[str]:
    """Files of one's own that a file of one's own imports: nothing that is installed."""
    library = (sys.prefix, sys.base_prefix, str(Path(__file__).parent))
    if file.startswith(library):
        return set()
    tree = ast.parse(Path(file).read_bytes())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    homes = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    return {home for home in homes if home and not home.startswith(library)}
