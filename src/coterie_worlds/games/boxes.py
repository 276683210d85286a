"""Sokoban's levels: read, drawn at random, compared, and solved.

A level is written as its players write it: `#` wall, `@` the player, `$` a box, `.` a goal, `*` a box on a goal, `+`
the player on one. Search is over pushes: a position is the set of boxes, and where the player can walk to among them.
Sets of cells are whole numbers, a bit a cell, so that a flood fill is a few shifts.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from random import Random
from typing import NamedTuple

from coterie_worlds.games.cells import MOST, Cell

SIGNS = "# @$.*+"
MOST_BOXES = 8
EXACT = 40_000
"""Maximum number of positions of player and boxes on a level for all of them to be looked at."""
MOST_NODES = 60_000
"""Maximum positions that a search looks at before it gives up."""
WEIGHT = 5
"""Weight of what is left to push against what was pushed: a search with 1 finds the fewest pushes."""


class Position(NamedTuple):
    """The cells of the player and the boxes. moved: moves so far."""

    player: Cell
    boxes: frozenset[Cell]
    moved: int = 0


@dataclass(frozen=True, eq=False)
class Board:
    """The board that a level's picture shows. floor: cells that the player or a box can ever stand on."""

    size: int
    floor: frozenset[Cell]
    goals: frozenset[Cell]
    start: Position


class NotALevel(ValueError):
    """An error: a picture that shows no level."""


@lru_cache(maxsize=4096)
def board(picture: str) -> Board:
    """Returns the board of a picture.

    Raises:
        NotALevel: it shows no level, and why.
    """
    found: dict[str, set[Cell]] = {sign: set() for sign in SIGNS}
    rows = picture.split("\n")
    if len(rows) > MOST or max(map(len, rows)) > MOST:
        raise NotALevel(f"it is larger than {MOST} x {MOST}")
    for row, line in enumerate(rows):
        for column, sign in enumerate(line):
            if sign not in found:
                raise NotALevel(f"{sign!r} is none of {SIGNS!r}")
            found[sign].add((row, column))
    players, boxes = found["@"] | found["+"], found["$"] | found["*"]
    goals = found["."] | found["*"] | found["+"]
    if len(players) != 1:
        raise NotALevel(f"it has {len(players)} players")
    if not 1 <= len(boxes) <= MOST_BOXES or len(boxes) != len(goals):
        raise NotALevel(f"it has {len(boxes)} boxes and {len(goals)} goals; as many of each, 1 to {MOST_BOXES}")
    (player,) = players
    floor = _reached(player, set().union(*found.values()) - found["#"])
    edge = {there for cell in floor for there in _beside(cell)} - floor
    if not edge <= found["#"]:
        raise NotALevel("its walls are not closed")
    if not (boxes | goals) <= floor:
        raise NotALevel("a box or a goal is out of reach")
    size = max(len(rows), *map(len, rows))
    return Board(size, frozenset(floor), frozenset(goals), Position(player, frozenset(boxes)))


def _beside(cell: Cell) -> tuple[Cell, Cell, Cell, Cell]:
    row, column = cell
    return (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)


def _reached(start: Cell, free: Set[Cell]) -> set[Cell]:
    """Returns all free cells that can be walked to from a start."""
    reached, edge = {start}, [start]
    while edge:
        for there in _beside(edge.pop()):
            if there in free and there not in reached:
                reached.add(there)
                edge.append(there)
    return reached


def picture(walls_of: Board, at: Position) -> str:
    """Returns the picture of a board with another position; read again it is the same."""
    rows = [["#"] * walls_of.size for _ in range(walls_of.size)]
    for cell in walls_of.floor:
        on_goal = cell in walls_of.goals
        sign = "*" if on_goal else "$"
        if cell not in at.boxes:
            sign = "." if on_goal else " "
            if cell == at.player:
                sign = "+" if on_goal else "@"
        rows[cell[0]][cell[1]] = sign
    return "\n".join("".join(row) for row in rows)


def canonical(text: str) -> str:
    """Returns the same text for all eight turns and mirror images of a level, wherever in its frame it lies."""
    it = board(text)
    rows, columns = zip(*it.floor, strict=True)
    marks = {cell: (cell in it.goals, cell in it.start.boxes, cell == it.start.player) for cell in it.floor}
    cells = [((row - min(rows), column - min(columns)), marks[row, column]) for row, column in it.floor]
    height, width = max(rows) - min(rows), max(columns) - min(columns)
    images = []
    for flipped, mirrored, turned in itertools.product((False, True), repeat=3):
        image = []
        for (row, column), mark in cells:
            moved = (height - row if flipped else row, width - column if mirrored else column)
            image.append((moved[::-1] if turned else moved, mark))
        images.append(sorted(image))
    return repr(min(images))


def step(it: Board, at: Position, there: Cell) -> Position | None:
    """Returns the position after one move, pushing a box that stands in the way; None if it must not be made."""
    rows, columns = there[0] - at.player[0], there[1] - at.player[1]
    if abs(rows) + abs(columns) != 1 or there not in it.floor:
        return None
    if there not in at.boxes:
        return Position(there, at.boxes, at.moved + 1)
    beyond = (there[0] + rows, there[1] + columns)
    if beyond not in it.floor or beyond in at.boxes:
        return None
    return Position(there, at.boxes - {there} | {beyond}, at.moved + 1)


class Search:
    """A search on a board, which keeps what it found out."""

    def __init__(self, it: Board) -> None:
        self.board = it
        self.width = it.size + 2  # a column of wall at each side, so that no shift runs into another row
        self.cells = sorted(it.floor)
        self.floor = self.mask(it.floor)
        self.goals = self.mask(it.goals)
        self.steps = (1, -1, self.width, -self.width)
        self.pulls = [self._pulls(self.at(goal)) for goal in sorted(it.goals)]
        self._assigned: dict[int, int | None] = {}
        self._left: dict[tuple[int, int], int] | None = None

    def at(self, cell: Cell) -> int:
        """Returns a cell's place among the bits."""
        return (cell[0] + 1) * self.width + cell[1] + 1

    def bit(self, cell: Cell) -> int:
        """Returns a cell as a set of one."""
        return 1 << self.at(cell)

    def mask(self, cells: frozenset[Cell]) -> int:
        """Returns cells as a set of bits."""
        bits = 0
        for row, column in cells:
            bits |= 1 << (row + 1) * self.width + column + 1
        return bits

    def cell(self, place: int) -> Cell:
        """Returns the cell of a place."""
        return place // self.width - 1, place % self.width - 1

    @property
    def exact(self) -> bool:
        """True if the board has so few positions that all can be looked at."""
        cells, boxes = len(self.board.floor), len(self.board.goals)
        return cells * comb(cells, boxes) <= EXACT

    def left(self, at: Position) -> int | None:
        """Returns the moves of a shortest solution if the board is `exact`, else pushes that are needed at least.

        None: it cannot be solved, as far as can be told.
        """
        boxes = self.mask(at.boxes)
        if not self.exact:
            pushes = self.pushes_left(boxes)
            return None if pushes is None or (pushes and self._frozen_off_goal(boxes)) else pushes
        if self._left is None:
            self._left = self._backwards()
        return self._left.get((self.at(at.player), boxes))

    def pushes_left(self, boxes: int) -> int | None:
        """Returns the pushes that boxes need at least, each as if alone; None if one can reach no goal of its own."""
        if boxes not in self._assigned:
            best: dict[int, int] = {0: 0}  # by goals that are taken
            for box in _places(boxes):
                following: dict[int, int] = {}
                for taken, cost in best.items():
                    for goal, pulls in enumerate(self.pulls):
                        if not taken >> goal & 1 and box in pulls:
                            key, sum_ = taken | 1 << goal, cost + pulls[box]
                            if sum_ < following.get(key, 1 << 30):
                                following[key] = sum_
                best = following
            self._assigned[boxes] = min(best.values(), default=None)
        return self._assigned[boxes]

    def solve(self, at: Position, weight: int = WEIGHT, nodes: int = MOST_NODES) -> list[Cell] | None:
        """Returns cells for the player to walk through that solve the board; None if the search gives up.

        Args:
            weight: 1: with the fewest pushes.
            nodes: positions that are looked at.
        """
        boxes, player = self.mask(at.boxes), self.at(at.player)
        if (first := self.pushes_left(boxes)) is None:
            return None
        region = self._region(1 << player, boxes)
        start = (boxes, region & -region)
        came: dict[tuple[int, int], tuple[tuple[int, int], int, int] | None] = {start: None}
        pushed = {start: 0}
        ties = itertools.count()
        queue = [(weight * first, 0, next(ties), start, region)]
        while queue and nodes:
            _, depth, _, key, region = heapq.heappop(queue)
            if depth > -pushed[key]:
                continue
            nodes -= 1
            boxes = key[0]
            if boxes == self.goals:
                return self._walked(player, start, key, came)
            for box in _places(boxes):
                for way in self.steps:
                    if not region >> (box - way) & 1 or not self.floor & ~boxes & (1 << box + way):
                        continue
                    after = boxes ^ (1 << box) | 1 << box + way
                    rest = self.pushes_left(after)
                    if rest is None or self._frozen(box + way, after) == "off":
                        continue
                    there = self._region(1 << box, after)
                    new = (after, there & -there)
                    cost = pushed[key] + 1
                    if cost < pushed.get(new, 1 << 30):
                        pushed[new], came[new] = cost, (key, box, way)
                        heapq.heappush(queue, (cost + weight * rest, -cost, next(ties), new, there))
        return None

    def _walked(
        self,
        player: int,
        start: tuple[int, int],
        end: tuple[int, int],
        came: dict[tuple[int, int], tuple[tuple[int, int], int, int] | None],
    ) -> list[Cell]:
        pushes: list[tuple[int, int, int]] = []
        while (step_ := came[end]) is not None:
            end, box, way = step_
            pushes.append((end[0], box, way))
        moves: list[int] = []
        for boxes, box, way in reversed(pushes):
            moves += self._path(player, box - way, boxes)
            moves.append(box)
            player = box
        return [self.cell(place) for place in moves]

    def _path(self, start: int, end: int, boxes: int) -> list[int]:
        """Returns a shortest walk, without its first place."""
        came = {end: end}
        queue = deque([end])
        while start not in came:
            here = queue.popleft()
            for way in self.steps:
                there = here + way
                if there not in came and self.floor & ~boxes & (1 << there):
                    came[there] = here
                    queue.append(there)
        path: list[int] = []
        while start != end:
            start = came[start]
            path.append(start)
        return path

    def _region(self, reach: int, boxes: int) -> int:
        """Returns every cell that can be walked to."""
        free = self.floor & ~boxes
        width = self.width
        while (wider := (reach | reach << 1 | reach >> 1 | reach << width | reach >> width) & free) != reach:
            reach = wider
        return reach

    def _pulls(self, goal: int) -> dict[int, int]:
        """Returns the pushes to a goal from every place from which a box that is alone can be brought there."""
        found = {goal: 0}
        queue = deque([goal])
        while queue:
            here = queue.popleft()
            for way in self.steps:
                there = here + way
                if there not in found and self.floor >> there & 1 and self.floor >> (there + way) & 1:
                    found[there] = found[here] + 1
                    queue.append(there)
        return found

    def _frozen(self, box: int, boxes: int) -> str:
        """Returns "" if a box may move again, "on" if it and what holds it stand on goals for ever, else "off"."""
        held: set[int] = set()

        def stuck(place: int) -> bool:
            held.add(place)
            for way in (1, self.width):
                sides = (place - way, place + way)
                if any(not self.floor >> side & 1 for side in sides):
                    continue
                if all(self.pushes_left(1 << side) is None for side in sides):
                    continue
                if any(boxes >> side & 1 and (side in held or stuck(side)) for side in sides):
                    continue
                return False
            return True

        if not stuck(box):
            return ""
        return "on" if all(self.goals >> place & 1 for place in held) else "off"

    def _frozen_off_goal(self, boxes: int) -> bool:
        return any(self._frozen(box, boxes) == "off" for box in _places(boxes))

    def _backwards(self) -> dict[tuple[int, int], int]:
        """Returns the moves to a solution from every position from which there is one."""
        found = {(self.at(cell), self.goals): 0 for cell in self.cells if not self.goals & self.bit(cell)}
        queue = deque(found)
        while queue:
            player, boxes = key = queue.popleft()
            for way in self.steps:
                before = player - way
                if not self.floor & ~boxes & (1 << before):
                    continue
                ways = [(before, boxes)]
                if boxes >> (player + way) & 1:  # the move was a push
                    ways.append((before, boxes ^ (1 << player + way) | 1 << player))
                for new in ways:
                    if new not in found:
                        found[new] = found[key] + 1
                        queue.append(new)
        return found

    def shortest(self, at: Position, rng: Random) -> list[Cell]:
        """Returns a random shortest solution of an `exact` board, as the cells that the player walks through."""
        cells: list[Cell] = []
        while left := self.left(at):
            ways = (step(self.board, at, (at.player[0] + row, at.player[1] + column)) for row, column in AROUND)
            at = rng.choice([new for new in ways if new is not None and self.left(new) == left - 1])
            cells.append(at.player)
        return cells


AROUND = ((-1, 0), (1, 0), (0, -1), (0, 1))


@lru_cache(maxsize=256)
def search(it: Board) -> Search:
    """Returns a board's search; kept, for it remembers what it found."""
    return Search(it)


def _places(boxes: int) -> Iterator[int]:
    while boxes:
        low = boxes & -boxes
        yield low.bit_length() - 1
        boxes ^= low


def drawn_board(size: int, boxes: int, walls: float, rng: Random) -> Board | None:
    """Returns a level at random, solvable or not; None if there was no room for it.

    Most levels that are drawn are thrown away, so none is written as a picture and read again here.
    """
    inner = [(row, column) for row in range(1, size - 1) for column in range(1, size - 1)]
    free = [cell for cell in inner if rng.random() >= walls]
    if len(free) < 2 * boxes + 1:
        return None
    player, *placed = rng.sample(free, 2 * boxes + 1)
    floor = _reached(player, set(free))  # without the room that nobody reaches
    if not floor.issuperset(placed):
        return None
    return Board(size, frozenset(floor), frozenset(placed[boxes:]), Position(player, frozenset(placed[:boxes])))
