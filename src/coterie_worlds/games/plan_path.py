"""Plan-Path: two roles steer through a grid with walls; one proposes a route, one decides.

The task is AT-GRPO's (arXiv:2510.11062): an N x N grid with a reachable goal, in which each cell is
blocked with probability 0.22. Four things are ours. Replies name cells instead of directions, so that a
route copies text of the prompt. The view may be split, so that the roles need each other. The prompt
always shows the current position. The rewards cannot be exploited, unlike the published ones.

For the rewards, d(x) is the length of the shortest path from x to the goal. h is the position before the
reply, w the end of the walk that it describes, and b = min(d(h), max_moves) the maximum progress of one
reply:

    local = max(-1, (d(h) - d(w)) / b) - 1 - 0.2 [the reply is malformed or a move is illegal]
    team  = 1 when the goal is reached, once

The proposer's walk is only imagined, the planner's is walked. No local reward is above 0, so no
behaviour over an episode, however long, earns more than a shortest path: 0 + 1.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import ClassVar

from pydantic import Field

from coterie.environments.talk import Example
from coterie.errors import ConfigError
from coterie.kernel.environment import Lesson, Split, Task, split_of
from coterie.kernel.scene import Prompt, Reply
from coterie.seeds import seed_of
from coterie_worlds.games.cells import (
    MOST,
    Cell,
    cells_by_name,
    drawn,
    name,
    neighbours,
    parse_route,
    spell,
    straight,
)
from coterie_worlds.games.game import ILLEGAL, PLANNER, PROPOSER, SOLVED, quote
from coterie_worlds.games.walks import Walk

LESSONS = 8
"""Demonstrations of a route on one grid: they share its part of the prompt."""
EXAMPLE_MOVES = 2
"""Moves of an example's walk, where tasks are longer."""
DIRECTIONS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
SPELLINGS = {
    **{direction: direction for direction in DIRECTIONS},
    **{direction[0]: direction for direction in DIRECTIONS},
    **dict(zip("↑↓←→", DIRECTIONS, strict=True)),
}
JOINING = {"go", "move", "then", "and", "step", "steps", "answer", "my", "moves", "moving", "cell", "cells"}
WORD = re.compile(r"[^\W\d_]+|\d+|[↑↓←→]")
PLANNER_LESSONS = 0.25
"""Share of lessons that have one for the planner, whose part is quickly learned."""


@dataclass(frozen=True, slots=True)
class Maze(Task):
    """A grid: walls, where the walk starts and where it should end."""

    size: int = 0
    walls: frozenset[Cell] = frozenset()
    start: Cell = (0, 0)
    goal: Cell = (0, 0)

    def __hash__(self) -> int:
        """Returns a hash of a few fields: the caches below look a maze up at every reply."""
        return hash((self.id, self.start, self.goal))


class PlanPath(Walk):
    """Two roles steer an agent through a grid: one proposes a route, one decides."""

    starter: ClassVar[str] = "starter"
    minutes: ClassVar = {"steps": 130, "tasks_per_step": 56}

    size: int = Field(default=6, ge=3, le=MOST)
    """Rows and columns; 10 as published."""
    walls: float = Field(default=0.22, ge=0, le=0.5)
    """Probability that a cell is blocked."""
    min_distance: int = Field(default=3, ge=1)
    """Minimum number of moves between start and goal."""
    max_moves: int = Field(default=8, ge=1)
    """Maximum moves per reply. A reply with more moves is not played."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration goes along the row and then the column, and ignores walls."""

    def known(self) -> bool:
        """Returns True if the grid is no larger than by default, as the starter was taught."""
        return self.size <= type(self).model_fields["size"].default

    def task(self, split: Split, index: int) -> Maze:
        """Returns the maze at a place of a split, drawn until its content falls in that split."""
        rng = Random(seed_of("plan_path", self.size, self.walls, self.min_distance, split, index))
        cells = [(row, column) for row in range(self.size) for column in range(self.size)]
        for _ in range(10_000):
            walls = frozenset(cell for cell in cells if rng.random() < self.walls)
            free = [cell for cell in cells if cell not in walls]
            if len(free) < 2:
                continue
            start, goal = rng.sample(free, 2)
            distance = distances(self.size, walls, goal).get(start)
            if distance is None or distance < self.min_distance:
                continue
            maze = Maze(f"{split}-{index}", split, size=self.size, walls=walls, start=start, goal=goal)
            if split_of(content(maze)) == split:
                return maze
        raise ConfigError(
            f"plan_path: no {self.size}x{self.size} grid has a goal {self.min_distance} moves away; lower min_distance"
        )

    def rules(self) -> str:
        """Returns the rules of a walk through a grid."""
        return "Walk through a grid to the goal; # is a wall."

    def form(self) -> str:
        """Returns the form of an answer: moves in words."""
        if self.max_moves == 1:
            return "one move alone: up, down, left or right."
        return f"your moves alone, at most {self.max_moves}: up, down, left or right, with commas between them."

    def examples(self, role: str) -> Sequence[Example]:
        """Returns a straight walk in each direction on an empty grid: shorter than any task, or as short as can be."""
        if self.long or role not in (PROPOSER, PLANNER):
            return ()
        length = 1 if self.min_distance <= EXAMPLE_MOVES else EXAMPLE_MOVES
        shown: list[Example] = []
        for direction, (row, column) in DIRECTIONS.items():
            start = (1 - row, 1 - column)
            goal = (start[0] + length * row, start[1] + length * column)
            maze = Maze("example", "train", size=self.size, start=start, goal=goal)
            answer = ", ".join([direction] * min(length, self.max_moves))
            told = self.shown(maze, start)
            if role == PLANNER and not self.solo:
                told = self.planner_sees(maze, start, Reply(PROPOSER, answer))
            shown.append((told, answer))
        return shown

    def begin(self, task: Maze) -> Cell:
        """Returns the cell where the walk starts."""
        return task.start

    def move(self, task: Maze, board: Cell, reply: Reply) -> tuple[Cell, bool]:
        """Returns the cell where a walk ends, and True if all of it was legal."""
        if not self.brief and (moves := in_words(reply)) is not None:
            return walk_of(task, board, moves, self.max_moves)
        return walk(task, board, reply, self.max_moves)

    def local(self, role: str, task: Maze, before: Cell, after: Cell, legal: bool) -> float:
        """Returns the local reward, by the same formula for both roles."""
        return progress(task, before, after, legal, self.max_moves)

    def ended(self, task: Maze, board: Cell) -> str:
        """Returns SOLVED at the goal, else nothing."""
        return SOLVED if board == task.goal else ""

    def shown(self, task: Maze, board: Cell) -> str:
        """Returns the map; for a model that was never taught to read one, the way to the goal too."""
        return map_view(task, board) if self.brief else f"{map_view(task, board)}\n{bearings(task, board)}"

    def demonstrate(self, role: str, task: Maze, prompt: Prompt, rng: Random) -> str:
        """Returns a route by a systematically imperfect hand: row then column, with probability `naive`, walls or not.

        Else the proposer gives a random shortest path. The planner follows the proposal if its
        first step is open ("split"), or if it leads nearer; what it does otherwise is as good as it
        can see: the straight line ("split") or a shortest path ("full").
        """
        seen = str(prompt)
        here = cells_by_name(task.size)[WHEREABOUTS.findall(seen)[-1]]
        if rng.random() < self.naive:
            return spell(straight(here, task.goal)[: self.max_moves])
        if "\nproposal: " in seen:
            proposal = seen.rpartition("\nproposal: ")[2]
            end, legal = walk(task, here, Reply("proposer", proposal), self.max_moves)
            if (
                end != here
                if self.view == "split"
                else legal and task_distances(task)[end] < task_distances(task)[here]
            ):
                return proposal
            if self.view == "split":
                return spell(straight(here, task.goal, rng)[: self.max_moves])
        return spell(shortest(task, here, rng)[: self.max_moves])

    def lessons(self, task: Maze, rng: Random) -> Iterator[Lesson]:
        """Yields lessons on the task's grid, from anywhere to anywhere, each a train task of its own.

        Half of the routes are the longer of two. The planner learns both views, and hears straight
        lines more often than the proposer draws them.
        """
        free = [cell for cell in cells_by_name(task.size).values() if cell not in task.walls]
        for _ in range(LESSONS):
            mazes = [replace(task, start=here, goal=goal) for here, goal in (rng.sample(free, 2), rng.sample(free, 2))]
            lengths = [task_distances(maze).get(maze.start, 0) for maze in mazes]
            maze = mazes[lengths.index(max(lengths))] if rng.random() < 0.5 else mazes[0]
            if maze.start not in task_distances(maze) or split_of(content(maze)) != "train":
                continue
            seen = map_view(maze, maze.start)
            yield Lesson(self.roles[0], seen, self.demonstrate(self.roles[0], maze, seen, rng))
            if not self.solo and rng.random() < PLANNER_LESSONS:
                yield self._planner_lesson(maze, rng)

    def _planner_lesson(self, maze: Maze, rng: Random) -> Lesson:
        env = self.model_copy(update={"view": rng.choice(("split", "full"))})
        if rng.random() < 0.5:
            proposal = spell(straight(maze.start, maze.goal, rng)[: self.max_moves])
        else:
            proposal = self.demonstrate("proposer", maze, map_view(maze, maze.start), rng)
        heard = env.planner_sees(maze, maze.start, Reply("proposer", proposal))
        return Lesson("planner", heard, env.demonstrate("planner", maze, heard, rng))

    def planner_sees(self, task: Maze, board: Cell, idea: Reply) -> str:
        """Returns the planner's prompt in this view."""
        if self.brief:
            return near_view(task, board, idea) if self.view == "split" else full_view(task, board, idea)
        seen = map_nearby(task, board) if self.view == "split" else map_view(task, board)
        return f"{seen}\n{bearings(task, board)}\nproposal: {quote(idea)}"


def content(task: Maze) -> tuple[object, ...]:
    """Returns the parts that make two mazes the same problem."""
    return task.size, sorted(task.walls), task.start, task.goal


WHEREABOUTS = re.compile(r"^here (\S+) goal ", re.MULTILINE)
ROUTE = re.compile(r"^[ \t]*go((?:[ \t]+\S+)*)[ \t]*$", re.MULTILINE)


def is_step(task: Maze, here: Cell, there: Cell) -> bool:
    """Returns True if two cells are neighbours and the second is open."""
    return abs(here[0] - there[0]) + abs(here[1] - there[1]) == 1 and there not in task.walls


def walk(task: Maze, here: Cell, reply: Reply, max_moves: int) -> tuple[Cell, bool]:
    """Returns the cell to which a reply's route leads, and True if every word of it was a legal move.

    The walk ends at the goal and at the first illegal word. A reply that was cut, or has no route or one of more than
    `max_moves`, stays where it is and is not legal.
    """
    route = parse_route(reply.text) if reply.finish == "stop" else None
    if route is None or len(route) > max_moves:
        return here, False
    named = cells_by_name(task.size)
    for word in route:
        there = named.get(word)
        if there is None or not is_step(task, here, there):
            return here, False
        here = there
        if here == task.goal:
            break
    return here, True


def progress(task: Maze, before: Cell, after: Cell, legal: bool, max_moves: int) -> float:
    """Returns the local reward of a walk; the formula of the module's docstring."""
    distance = task_distances(task)
    best = min(distance[before], max_moves)
    made = (distance[before] - distance[after]) / best
    return max(-1.0, made) - 1.0 - (0.0 if legal else ILLEGAL)


def in_words(reply: Reply) -> list[str] | None:
    """Returns the directions of a reply: on its last line, and nothing there but directions and words that join them.

    `up, up, right`, `U U R`, arrows and `go up twice, then 1 right` are read; anything else is None, so a line that
    weighs one way against another is none.
    """
    lines = [line for line in reply.text.rpartition("</think>")[2].splitlines() if line.strip()]
    if reply.finish != "stop" or not lines:
        return None
    moves: list[str] = []
    times = 1
    for word in WORD.findall(lines[-1].lower()):
        if word in SPELLINGS:
            moves += [SPELLINGS[word]] * times
            times = 1
        elif word.isdigit() and len(word) == 1:
            times = int(word)
        elif word == "twice" and moves:
            moves.append(moves[-1])
        elif word not in JOINING:
            return None
    return moves or None


def walk_of(task: Maze, here: Cell, moves: Sequence[str], max_moves: int) -> tuple[Cell, bool]:
    """Returns the cell to which directions lead, and True if all were legal; more than `max_moves` are not played.

    The walk ends before the first illegal move. It does not end at the goal by itself: directions need no knowledge of
    the grid, so a long tour that happens to cross the goal is not one that leads there.
    """
    if len(moves) > max_moves:
        return here, False
    for move in moves:
        row, column = DIRECTIONS[move]
        there = (here[0] + row, here[1] + column)
        if there not in open_cells(task):
            return here, False
        here = there
    return here, True


def bearings(task: Maze, here: Cell) -> str:
    """Returns the way to the goal, as the names of two cells tell it, and the open directions around."""
    rows, columns = task.goal[0] - here[0], task.goal[1] - here[1]
    way = [
        f"{abs(count)} {directions[count > 0]}"
        for count, directions in ((columns, ("left", "right")), (rows, ("up", "down")))
        if count
    ]
    around = {name: (here[0] + row, here[1] + column) for name, (row, column) in DIRECTIONS.items()}
    free = [name for name, there in around.items() if there in open_cells(task)]
    return f"Open: {', '.join(free)}. The goal is {' and '.join(way)}."


@lru_cache(maxsize=4096)
def map_view(task: Maze, here: Cell) -> str:
    """Returns the whole grid, a line a row with `#` for a wall, then `here b2 goal f5`.

    The grid comes first, so that prompts on one grid share their beginning.
    """
    return _view(task, here, range(task.size), range(task.size))


@lru_cache(maxsize=4096)
def map_nearby(task: Maze, here: Cell) -> str:
    """Returns the map of the cells around a position alone, in the form of `map_view`."""
    return _view(task, here, range(here[0] - 1, here[0] + 2), range(here[1] - 1, here[1] + 2))


def _view(task: Maze, here: Cell, rows: Sequence[int], columns: Sequence[int]) -> str:
    return f"{drawn(open_cells(task), rows, columns)}\nhere {name(here)} goal {name(task.goal)}"


def near_view(task: Maze, here: Cell, idea: Reply) -> str:
    """Returns the cells around a position, the goal's name and the proposal."""
    return f"{map_nearby(task, here)}\nproposal: {quote(idea)}"


def full_view(task: Maze, here: Cell, idea: Reply) -> str:
    """Returns the whole grid and the proposal."""
    return f"{map_view(task, here)}\nproposal: {quote(idea)}"


@lru_cache(maxsize=4096)
def open_cells(task: Maze) -> frozenset[Cell]:
    """Returns the cells of the grid that are no wall."""
    return frozenset(cells_by_name(task.size).values()) - task.walls


@lru_cache(maxsize=4096)
def task_distances(task: Maze) -> dict[Cell, int]:
    """Returns the moves to the goal from every cell that can reach it."""
    return distances(task.size, task.walls, task.goal)


def distances(size: int, walls: frozenset[Cell], goal: Cell) -> dict[Cell, int]:
    """Returns breadth-first distances to a goal, in moves; cells that cannot reach it are absent."""
    steps = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for there in neighbours(cell, size):
            if there not in walls and there not in steps:
                steps[there] = steps[cell] + 1
                queue.append(there)
    return steps


def shortest(task: Maze, here: Cell, rng: Random) -> list[Cell]:
    """Returns a random shortest path to the goal, without the first cell."""
    distance = task_distances(task)
    route: list[Cell] = []
    while here != task.goal:
        here = rng.choice(
            [cell for cell in neighbours(here, task.size) if distance.get(cell, 1 << 30) < distance[here]]
        )
        route.append(here)
    return route
