"""Sokoban's levels of a file, as Boxoban's are written, or one's own; see `published/data.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.environments.published.data import Benchmark, Reader, Unfit, told_by
from coterie.environments.published.sources import BLOCK, Row
from coterie.kernel.environment import Task
from coterie_worlds.games.boxes import NotALevel, board, canonical, search


@dataclass(frozen=True, slots=True)
class Level(Task):
    """A level. picture: as its players write it."""

    picture: str = ""


@dataclass(frozen=True)
class Levels(Reader[Level]):
    """A reader of rows as levels."""

    benchmarks: ClassVar[Mapping[str, Benchmark]] = {}

    def format_of(self, row: Row, where: str) -> Callable[[Row], Level]:
        """Returns a function that reads the picture in a row. Raises ConfigError: there is no such column."""
        return told_by({(BLOCK,): ("Boxoban, or one's own", _level)}, row, where)

    def unfit(self, item: Level) -> str:
        """Returns why a level is unfit, if so: solved as it stands, or seen to be unsolvable.

        On large boards only a box that can reach no goal is seen.
        """
        it = board(item.picture)
        if it.start.boxes == it.goals:
            return "with every box on a goal"
        return "with a box that is lost" if search(it).left(it.start) is None else ""

    def words(self, item: Level) -> tuple[str, str]:
        """Returns no name and one word that turns and mirror images of a level share."""
        return "", hashlib.sha256(canonical(item.picture).encode()).hexdigest()

    def content(self, item: Level) -> list[Any]:
        """Returns the picture, all that anything measured depends on."""
        return [item.picture]


def _level(row: Row) -> Level:
    picture = row[BLOCK]
    if not isinstance(picture, str):
        raise Unfit(f"its {BLOCK} is no text")
    try:
        board(picture)
    except NotALevel as error:
        raise Unfit(str(error)) from error
    return Level("", "train", picture=picture)
