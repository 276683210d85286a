"""Names of the cells of a grid (column letter, row number), and routes as lists of names.

Cell names are our choice. A reply that names cells copies text of the prompt, and a small model learns this far sooner
than directions (`up`, `L`). For directions it would have to track its position while it writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from random import Random

Cell = tuple[int, int]
"""(row, column), counted from the top left."""
MOST = 20
"""Maximum number of rows, and of columns, of a grid."""
ROUTE = re.compile(r"^[ \t]*go((?:[ \t]+\S+)*)[ \t]*$", re.MULTILINE)


@lru_cache(maxsize=512)
def name(cell: Cell) -> str:
    """Returns a cell as replies and prompts name it: column letter, row number."""
    return f"{chr(ord('a') + cell[1])}{cell[0] + 1}"


@lru_cache(maxsize=8)
def cells_by_name(size: int) -> dict[str, Cell]:
    """Returns every cell of a square grid under its name."""
    return {name((row, column)): (row, column) for row in range(size) for column in range(size)}


def spell(cells: Sequence[Cell]) -> str:
    """Returns a route as a reply: `go b1 b2 c2`."""
    return " ".join(["go", *map(name, cells)])


def parse_route(text: str) -> list[str] | None:
    """Returns the words after the last line that starts with `go`; None when there is no such line."""
    routes = ROUTE.findall(text)
    return routes[-1].split() if routes else None


def neighbours(cell: Cell, size: int) -> list[Cell]:
    """Returns the cells of the grid one move away, walls or not."""
    row, column = cell
    around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    return [(r, c) for r, c in around if 0 <= r < size and 0 <= c < size]


def straight(here: Cell, goal: Cell, rng: Random | None = None) -> list[Cell]:
    """Returns a line to the goal as if there were no walls: along the row first, or in random order."""
    route: list[Cell] = []
    while here != goal:
        rows, columns = goal[0] - here[0], goal[1] - here[1]
        along = columns != 0 if rng is None else rng.random() * (abs(rows) + abs(columns)) >= abs(rows)
        if along:
            here = (here[0], here[1] + (1 if columns > 0 else -1))
        else:
            here = (here[0] + (1 if rows > 0 else -1), here[1])
        route.append(here)
    return route


def drawn(open_cells: frozenset[Cell] | set[Cell], rows: Sequence[int], columns: Sequence[int]) -> str:
    """Returns a part of a grid, a line a row: the names of open cells, `#` for the others."""
    return "\n".join(
        "".join(f" {name((row, column))}" if (row, column) in open_cells else " #" for column in columns)
        for row in rows
    )
