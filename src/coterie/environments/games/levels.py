"""Sokoban's levels of a file, as Boxoban's are written, or one's own; see `published/data.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.environments.games.boxes import NotALevel, board, canonical, search
from coterie.environments.published.data import Benchmark, Reader, Unfit, told_by
from coterie.environments.published.sources import BLOCK, Row
from coterie.kernel.environment import Task


@dataclass(frozen=True, slots=True)
class Level(Task):
    """A level. picture: as its players write it."""

    picture: str = ""


@dataclass(frozen=True)
class Levels(Reader[Level]):
    """Rows as levels."""

    benchmarks: ClassVar[Mapping[str, Benchmark]] = {}

    def format_of(self, row: Row, where: str) -> Callable[[Row], Level]:
        """A picture."""
        return told_by({(BLOCK,): ("Boxoban, or one's own", _level)}, row, where)

    def unfit(self, item: Level) -> str:
        """One that is solved as it stands, or is seen never to be: on large boards, by a box that can reach no goal."""
        it = board(item.picture)
        if it.start.boxes == it.goals:
            return "with every box on a goal"
        return "with a box that is lost" if search(it).left(it.start) is None else ""

    def words(self, item: Level) -> tuple[str, str]:
        """One word that turns and mirror images of a level share."""
        return "", hashlib.sha256(canonical(item.picture).encode()).hexdigest()

    def content(self, item: Level) -> list[Any]:
        """The picture."""
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
