"""Everything that exact results depend on: versions, settings, files. `Run.check_exact` compares it on resume."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import itertools
import linecache
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from coterie.config.settings import Config
from coterie.engines.remote_config import LIMITS
from coterie.installed import spec_of
from coterie.kernel.engine import Engine
from coterie.kernel.environment import Settings
from coterie.kernel.mistakes import OURS
from coterie.registry import find
from coterie.syntax import tree_of

EXACT = ("coterie", "torch", "transformers", "tokenizers", "numpy")
"""Packages of which another version may compute something else."""
KERNELS = (
    "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
)  # fmt: skip
"""Variables of the environment that choose how a processor adds up."""
MENDS = {
    **{name: f"install that version of {name}" for name in (*EXACT, "peft")},
    "python": "use that version of Python",
    "threads": "set OMP_NUM_THREADS to that number",
    "device": "use that device",
    "ranks": "set train.ranks to that number",
    "runtime": "set [runtime] so",
    "environment": "restore its file",
    "algorithm": "restore its file",
    "loss": "restore its file",
    "engine": "restore its file",
    "config": "restore config.toml",
    "policy": "restore that model",
    **dict.fromkeys(KERNELS, "set that variable so"),
    "metrics.jsonl": "put that file back",
}
"""Advice that makes a run exact again, by the first word of what differs."""


def exactness(config: Config) -> dict[str, str]:
    """Returns what exact results rest on apart from devices: versions, and digests of settings and files.

    An environment's and an algorithm's files are those of their classes, the files of one's own that these import by
    name (what `importlib.import_module` loads is not seen), and those that settings name.
    """
    tables = config.tables()
    free = ("steps", "stop_when_solved", "stop_dead_steps", "ranks")
    tables["train"] = {key: value for key, value in tables["train"].items() if key not in free}
    left_out = {"model": True, "remote": set(LIMITS)}  # model folders are compared by their content
    tables["policies"] = {name: policy.model_dump(exclude=left_out) for name, policy in config.policies.items()}
    del tables["trackers"], tables["runtime"]  # where a run's parts are stands beside ranks and devices
    return {
        **{name: metadata.version(name) for name in EXACT},
        "python": ".".join(platform.python_version_tuple()[:2]),
        **({"peft": metadata.version("peft")} if any(one.kind == "lora" for one in config.policies.values()) else {}),
        "config": hashlib.sha256(repr(sorted(tables.items())).encode()).hexdigest()[:12],
        "environment": _source(config.environment),
        "algorithm": _source(config.algorithm),
        "loss": _source(config.loss),
        "engine": _source(config.engine, find("engine", config.names["engine"], Engine), Engine),
    }


def circumstances(config: Config, exact: Mapping[str, str]) -> dict[str, Any]:
    """Returns the content of about.json for a new run.

    Args:
        exact: what its exact results rest on, by name.
    """
    packages = ("coterie", "torch", "transformers", "tokenizers", "pydantic", "numpy")
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git here: the commit is not known
        git = ""
    return {
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "system": platform.system()},
        "isolation": config.environment.isolation() or None,
        "remarks": list(config.remarks),
        "exact": dict(exact),
        "seed": config.train.seed,
        "commit": git or None,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _source(settings: Settings, made: type | None = None, base: type = Settings) -> str:
    """Returns a digest of a class's files, down to its base, and of the files that its settings name.

    Args: made: the class; None: the settings' own.
    """
    kinds = [kind for kind in (made or type(settings)).__mro__ if issubclass(kind, base) and kind is not base]
    waiting = {kind.__module__: file for kind in kinds if (file := inspect.getsourcefile(kind))}
    files: set[str] = set()
    while waiting:
        module, file = waiting.popitem()
        files.add(file)
        waiting |= {name: origin for name, origin in _imported(module, file).items() if origin not in files}
    digest = hashlib.sha256()
    for _, content in sorted((Path(file).name, _content(file)) for file in files):  # whatever path they lie at
        digest.update(content)
    for file in itertools.chain.from_iterable(map(_named, _strings(settings.model_dump(mode="json")))):
        digest.update(file.read_bytes())
    digest.update(settings.content().encode())
    return digest.hexdigest()[:12]


def _strings(value: Any) -> Iterator[str]:
    """Yields every string in plain data, in the order of names."""
    match value:
        case str():
            yield value
        case dict():
            for _, item in sorted(value.items()):
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)
        case _:
            pass


def _named(text: str) -> list[Path]:
    """Returns the files that a setting names: a file, or all in a folder that is written as a path; most name none."""
    with contextlib.suppress(OSError, ValueError):
        path = Path(text)
        if path.is_file():
            return [path]
        if "/" in text and path.is_dir():
            return sorted(file for file in path.rglob("*") if file.is_file())
    return []


def _imported(module: str, file: str) -> dict[str, str]:
    """Returns the user's own files that one of them imports, wherever in it, by module: nothing that is installed."""
    if _installed(file) or not file.endswith(".py"):  # a compiled module is read whole; what it imports cannot be seen
        return {}
    package = module if Path(file).name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    if (tree := tree_of(_content(file))) is None:  # it does not parse, and whoever imports it gets the error
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # a relative import beyond its package fails when it runs, too
                home = resolve_name("." * node.level + (node.module or ""), package)
                names |= {f"{home}.{alias.name}" for alias in node.names}  # a name may be a module
    whole = {".".join(parts[:end]) for parts in (name.split(".") for name in names) for end in range(1, len(parts) + 1)}
    homes = {name: _home(name) for name in whole}
    return {name: home for name, home in homes.items() if home and not _installed(home)}


def _home(name: str) -> str | None:
    """Returns the file of a module, imported or not: what is loaded by now would differ between begin and resume."""
    spec = spec_of(name)
    return spec.origin if spec and spec.has_location else None


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:  # a cell of a notebook: Python knows its text, and there is no file
        return "".join(linecache.getlines(file)).encode()


def _installed(file: str) -> bool:
    return any(map(Path(file).is_relative_to, (sys.prefix, sys.base_prefix, *OURS)))
