"""Names that installed packages bring as entry points: of worlds, algorithms, losses, engines, trackers, starters.

The worlds and starters that come with Coterie are a package of their own, `coterie_worlds`, and are found in the same
way as anybody's.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from coterie.errors import ConfigError

OURS = "coterie"
"""The distribution whose names no other one takes."""
PACKAGES = ("coterie", "coterie_worlds")
"""Packages of this distribution."""


def entries(group: str) -> dict[str, str]:
    """Returns what installed packages have in the group `coterie.GROUP`: `module:Class` or `package` by name."""
    return _entries(f"coterie.{group}", tuple(sys.path))


@cache
def _entries(group: str, path: tuple[str, ...]) -> dict[str, str]:
    points = sorted(metadata.entry_points(group=group))
    ours = {point.name: point.value for point in points if point.dist is not None and point.dist.name == OURS}
    return ours | {point.name: point.value for point in points if point.name not in ours}


def is_ours(module: str) -> bool:
    """Returns True if a module, or `module:Class`, is of this distribution."""
    return module.partition(":")[0].partition(".")[0] in PACKAGES


def starters() -> dict[str, str]:
    """Returns the small models that installed packages bring: by name, the package that is a model's folder."""
    return entries("starters")


def starter_folder(name: str) -> Path:
    """Returns the folder of a starter.

    Raises:
        ConfigError: its package is not there.
    """
    package = starters()[name]
    top, *inner = package.split(".")
    spec = spec_of(top)
    for home in (spec and spec.submodule_search_locations) or ():
        folder = Path(home, *inner)
        if all(map(str.isidentifier, inner)) and folder.is_dir():
            return folder
    raise ConfigError(f"the starter {name} is not there: no package {package}; install its package again")


def spec_of(name: str) -> ModuleSpec | None:
    """Returns where a module is, imported or not; None if it is nowhere. Nothing is imported, no package around it."""
    path, spec = None, None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = None
        with contextlib.suppress(Exception):  # a finder may be anybody's
            finders = (finder.find_spec(".".join(parts[:end]), path) for finder in sys.meta_path)
            spec = next(filter(None, finders), None)
        if spec is None or (spec.submodule_search_locations is None and end < len(parts)):
            return None
        path = spec.submodule_search_locations
    return spec
