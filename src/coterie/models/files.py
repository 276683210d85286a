"""Names of the folders and files of models and checkpoints, and what these say of themselves, without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.bounded import content
from coterie.errors import ConfigError, first_line

ADAPTER_CONFIG = "adapter_config.json"
"""Name of the file that makes a folder one of PEFT's."""
GGUF = ".gguf"
"""Ending of the name of a model in one file."""
LARGEST_CONFIG = 16 << 20
"""Maximum number of bytes of a model's config.json."""
MOST_LAYERS, MOST_MODULES = 1_000, 600_000
"""Maximum numbers of layers of a model, and of layers times experts, of which Doge has 524,288."""
LAYERS = re.compile(r"\w*layers?|num_blocks|depth")
EXPERTS = re.compile(r"\w*experts")
POLICIES, OPTIMIZERS = "policies", "optimizers"
"""Folders of a checkpoint: of its model folders, and of the states of their optimizers."""


def check_there(where: str, source: str) -> None:
    """Refuses a model whose path leads nowhere.

    Args:
        where: the setting that names it.

    Raises:
        ConfigError: the folder, or the GGUF file, does not exist.
    """
    path = Path(source)
    afar = len(path.parts) <= 2 and not source.startswith((".", "~"))  # NAME, or OWNER/NAME of a hub
    if (not afar or path.is_absolute() or path.suffix == GGUF) and not path.exists():
        kind, advice = "file" if path.suffix == GGUF else "folder", "put it back, or name another model"
        if source.startswith("~"):
            advice = f"write {path.expanduser()}"
        elif "://" in source or source.startswith("hf.co/"):
            advice = "a model of the hub is OWNER/NAME"
        raise ConfigError(f"{where} = '{source}': this {kind} does not exist; {advice}")


def check_size(where: str, folder: Path) -> None:
    """Refuses a folder whose config.json asks for more modules than any model has.

    Args:
        where: the setting that names it.

    Raises:
        ConfigError: it does, or it cannot be read.
    """
    file = folder / "config.json"
    try:
        config = json.loads(content(file, LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {file} cannot be read: {first_line(error)}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{where}: {file} is no table of settings; mend it, or name another model")
    check_modules(where, config)


def check_modules(where: str, config: Mapping[str, Any]) -> None:
    """Refuses a config that asks for more modules than any model has: making them takes minutes and gigabytes.

    Raises:
        ConfigError: it does.
    """
    layers = experts = 1
    left = [config]
    while left:
        for key, value in left.pop().items():
            if isinstance(value, dict):
                left.append(value)
            elif isinstance(value, int):
                layers = max(layers, value if LAYERS.fullmatch(key) else 1)
                experts = max(experts, value if EXPERTS.fullmatch(key) else 1)
    if layers > MOST_LAYERS or layers * experts > MOST_MODULES:
        raise ConfigError(
            f"{where}: its config.json asks for {layers:,} layers of {experts:,} experts, more than any model has; "
            "mend it, or name another model"
        )


def adapter_config(folder: Path) -> dict[str, Any] | None:
    """Returns the config of an adapter's folder; None if it holds no adapter.

    Raises:
        ConfigError: it is damaged.
    """
    file = folder / ADAPTER_CONFIG
    if not file.is_file():
        return None
    try:
        config = json.loads(file.read_bytes())
        if not isinstance(config["base_model_name_or_path"], str):
            raise TypeError("no base")
        return config
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is damaged, or names no base; put it back from a copy") from error


def base_of(folder: Path) -> str | None:
    """Returns the base of an adapter, a folder or a hub's id; None if the folder holds no adapter.

    A base that was exported beside the adapter is found there when both have moved.
    """
    config = adapter_config(folder)
    if config is None:
        return None
    base = config["base_model_name_or_path"]
    beside = folder.parent / Path(base).name
    return base if Path(base).is_dir() or not beside.is_dir() else str(beside)
