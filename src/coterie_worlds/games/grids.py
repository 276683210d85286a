"""Sudoku's grids: solved, counted, drawn, and compared.

A grid is a tuple of whole numbers, row by row, 0 where a cell is empty; candidates are bits of a whole number.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from math import isqrt
from random import Random

Grid = tuple[int, ...]


@lru_cache(maxsize=4)
def units(size: int) -> tuple[tuple[int, ...], ...]:
    """Returns the cells of every row, column and box."""
    side = isqrt(size)
    rows = [tuple(row * size + column for column in range(size)) for row in range(size)]
    columns = [tuple(row * size + column for row in range(size)) for column in range(size)]
    boxes = [
        tuple((top + row) * size + left + column for row in range(side) for column in range(side))
        for top in range(0, size, side)
        for left in range(0, size, side)
    ]
    return (*rows, *columns, *boxes)


@lru_cache(maxsize=4)
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """Returns, for every cell, the others that must differ from it."""
    return tuple(
        tuple(sorted({other for unit in units(size) if cell in unit for other in unit} - {cell}))
        for cell in range(size * size)
    )


def candidates(grid: Grid, cell: int, size: int) -> list[int]:
    """Returns the digits that no peer of a cell has."""
    taken = {grid[other] for other in peers(size)[cell]}
    return [digit for digit in range(1, size + 1) if digit not in taken]


def clash(grid: Grid, size: int) -> bool:
    """Returns True if a row, column or box has a digit twice."""
    told = ([grid[cell] for cell in unit if grid[cell]] for unit in units(size))
    return any(len(digits) > len(set(digits)) for digits in told)


def solutions(grid: Grid, size: int, most: int = 2, rng: Random | None = None) -> list[Grid]:
    """Returns the ways to fill a grid, up to `most`; in random order where chance is given."""
    filling = _Filling(grid, size, most, rng)
    if filling.possible:
        filling.go_on()
    return filling.found


class _Filling:
    """A search that fills the cell with the fewest candidates first."""

    def __init__(self, grid: Grid, size: int, most: int, rng: Random | None) -> None:
        self.size, self.most, self.rng = size, most, rng
        self.cells = list(grid)
        self.taken = [0] * len(grid)  # digits that a peer of a cell has, as bits
        self.found: list[Grid] = []
        for cell, digit in enumerate(grid):
            for other in peers(size)[cell] if digit else ():
                self.taken[other] |= 1 << digit
        self.possible = not any(digit and self.taken[cell] >> digit & 1 for cell, digit in enumerate(grid))

    def go_on(self) -> None:
        cell = self.tightest()
        if cell is None:
            self.found.append(tuple(self.cells))
            return
        digits = [digit for digit in range(1, self.size + 1) if not self.taken[cell] >> digit & 1]
        if self.rng:
            self.rng.shuffle(digits)
        for digit in digits:
            changed = [other for other in peers(self.size)[cell] if not self.taken[other] >> digit & 1]
            self.put(cell, digit, changed, digit)
            self.go_on()
            self.put(cell, digit, changed, 0)
            if len(self.found) >= self.most:
                return

    def tightest(self) -> int | None:
        """Returns the empty cell that the fewest digits fit; None where there is none."""
        empty = (cell for cell, digit in enumerate(self.cells) if not digit)
        return max(empty, key=lambda cell: self.taken[cell].bit_count(), default=None)

    def put(self, cell: int, digit: int, changed: list[int], now: int) -> None:
        self.cells[cell] = now
        for other in changed:
            self.taken[other] ^= 1 << digit


def drawn(size: int, givens: int, rng: Random) -> tuple[Grid, Grid] | None:
    """Returns a puzzle with one solution and so many givens, and the solution; None if this draw got none."""
    (solved,) = solutions((0,) * (size * size), size, 1, rng)
    grid = list(solved)
    left = size * size
    for cell in rng.sample(range(size * size), size * size):
        if left == givens:
            break
        grid[cell] = 0
        if len(solutions(tuple(grid), size)) == 1:
            left -= 1
        else:
            grid[cell] = solved[cell]
    return (tuple(grid), solved) if left == givens else None


@lru_cache(maxsize=4)
def symmetries(size: int) -> tuple[tuple[int, ...], ...]:
    """Returns the ways to move cells that make a puzzle of a puzzle: of 4 x 4 all 128; of larger ones two."""
    if size > 4:
        return (
            tuple(range(size * size)),
            tuple(column * size + row for row in range(size) for column in range(size)),
        )
    lines = [
        tuple(band * 2 + line for band, order in zip(bands, orders, strict=True) for line in order)
        for bands in itertools.permutations(range(2))
        for orders in itertools.product(itertools.permutations(range(2)), repeat=2)
    ]
    return tuple(
        tuple(
            (columns[column] * size + rows[row]) if turned else rows[row] * size + columns[column]
            for row in range(size)
            for column in range(size)
        )
        for rows in lines
        for columns in lines
        for turned in (False, True)
    )


def canonical(grid: Grid, size: int) -> Grid:
    """Returns one grid for all puzzles that are alike but for digit names and the lines' order; see `symmetries`."""
    least: Grid = ()
    for order in symmetries(size):
        names, image = {0: 0}, []
        below = not least  # whether the image is already known to be the lesser
        for cell, other in zip(order, least or order, strict=True):
            name = names.setdefault(grid[cell], len(names))
            if not below:
                if name > other:
                    break
                below = name < other
            image.append(name)
        else:
            least = tuple(image)
    return least
