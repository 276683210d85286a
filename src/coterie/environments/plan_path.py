"""Plan-Path: two roles steer through a grid with walls; one proposes a route, one decides.

The task is AT-GRPO's (arXiv:2510.11062): an N x N grid, each cell blocked with probability
0.22, a goal that can be reached. What is ours, and why: replies name cells instead of
directions, so that a route is a copy of what the prompt shows; the view may be split, so that
the roles need each other; the position shown is always the live one; the rewards below cannot
be farmed, as the published ones can.

Rewards. d(x) is the length of the shortest path from x to the goal, h the position before the
reply, w where the walk it describes ends, b = min(d(h), max_moves) the best progress one reply
can make:

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
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.errors import ConfigError
from coterie.kernel.environment import Environment, Lesson, Split, Task, split_of
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie.seeds import seed_of

Cell = tuple[int, int]
"""(row, column), counted from the top left."""

ILLEGAL = 0.2
"""What a malformed reply or an illegal move costs."""
LONGEST_QUOTE = 200
"""Characters of a proposal that the planner is shown."""
LESSONS = 8
"""Demonstrations of a route on one grid: they share its part of the prompt."""
PLANNER_LESSONS = 0.25
"""Share of them that have one for the planner, whose part is quickly learned."""


@dataclass(frozen=True, slots=True)
class Maze(Task):
    """A grid: walls, where the walk starts and where it should end."""

    size: int = 0
    walls: frozenset[Cell] = frozenset()
    start: Cell = (0, 0)
    goal: Cell = (0, 0)

    def __hash__(self) -> int:
        """Short: the caches below look a maze up at every reply."""
        return hash((self.id, self.start, self.goal))


class PlanPath(Environment):
    """Two roles steer an agent through a grid: one proposes a route, one decides."""

    team_reward_range: ClassVar = (0.0, 1.0)
    starter: ClassVar[str] = "starter"

    size: int = Field(default=6, ge=3, le=20)
    """Rows and columns; 10 as published."""
    walls: float = Field(default=0.22, ge=0, le=0.5)
    """Probability that a cell is blocked."""
    min_distance: int = Field(default=3, ge=1)
    """Moves between start and goal, at least."""
    max_turns: int = Field(default=4, ge=1)
    """Turns until the episode ends unsolved."""
    max_moves: int = Field(default=8, ge=1)
    """Moves of one reply that count; more are an illegal move."""
    max_tokens: int = Field(default=32, ge=4)
    """Tokens of one reply; one that is cut is malformed."""
    view: Literal["split", "full"] = "split"
    """split: only the proposer sees the map; full: both do, as published."""
    solo: bool = False
    """One role, the planner, with the map and nobody to ask: the single-agent baseline."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """How often a demonstration goes along the row, then the column, walls or not."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """proposer, planner; or the planner alone."""
        return ("planner",) if self.solo else ("proposer", "planner")

    def recommended(self) -> dict[str, dict[str, Any]]:
        """The demo; the paper's greedy commit rarely shows the team where its own mistakes lead."""
        tables = {"optimizer": {"lr": 1e-3}, "train": {"steps": 130, "tasks_per_step": 56}}
        if self.solo:
            return {"algorithm": {"name": "grpo"}, **tables}
        return {
            "algorithm": {"name": "at_grpo", "horizon": "point", "commit": "random"},
            "team": {"proposer": "scout", "planner": "pilot"},
            "policies": {"scout": {}, "pilot": {}},
            **tables,
        }

    def inert(self) -> dict[str, str]:
        """`view` has no effect on a planner that is alone."""
        return {"view": "solo = true always shows the map"} if self.solo else {}

    def task(self, split: Split, index: int) -> Maze:
        """The maze at a place of a split, drawn until its content falls in that split."""
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

    async def play(self, task: Maze, scene: Scene) -> None:
        """Up to `max_turns` turns of a proposal and a walk."""
        here = task.start
        for _ in scene.turns(self.max_turns):
            if self.solo:
                prompt = map_view(task, here)
            else:
                idea = await scene.ask("proposer", map_view(task, here), max_tokens=self.max_tokens)
                end, legal = walk(task, here, idea, self.max_moves)
                scene.reward("proposer", progress(task, here, end, legal, self.max_moves))
                prompt = self.planner_sees(task, here, idea)
            answer = await scene.ask("planner", prompt, max_tokens=self.max_tokens)
            end, legal = walk(task, here, answer, self.max_moves)
            scene.reward("planner", progress(task, here, end, legal, self.max_moves))
            here = end
            if here == task.goal:
                scene.team_reward(1.0)
                return scene.succeed()
            scene.team_reward(0.0)
        return scene.fail("turn limit")

    def demonstrate(self, role: str, task: Maze, prompt: Prompt, rng: Random) -> str:
        """A route by a systematically imperfect hand: row then column, whatever stands there, with probability `naive`.

        Else the proposer gives a random shortest path. The planner follows the proposal if its
        first step is open ("split"), or if it leads nearer; what it does otherwise is as good as it
        can see: the straight line ("split") or a shortest path ("full").
        """
        seen = str(prompt)
        here = cells_by_name(task.size)[WHEREABOUTS.findall(seen)[0]]
        if rng.random() < self.naive:
            return spell(straight(here, task.goal)[: self.max_moves])
        if "\nproposal: " in seen:
            proposal = seen.split("\nproposal: ")[1]
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
        """Demonstrations on the task's grid, from anywhere to anywhere, each a train task of its own.

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

    def planner_sees(self, task: Maze, here: Cell, idea: Reply) -> str:
        """The planner's prompt in this view."""
        return near_view(task, here, idea) if self.view == "split" else full_view(task, here, idea)


def content(task: Maze) -> tuple[object, ...]:
    """What makes two mazes the same problem."""
    return task.size, sorted(task.walls), task.start, task.goal


@lru_cache(maxsize=512)
def name(cell: Cell) -> str:
    """A cell as replies and prompts name it: column letter, row number."""
    return f"{chr(ord('a') + cell[1])}{cell[0] + 1}"


@lru_cache(maxsize=8)
def cells_by_name(size: int) -> dict[str, Cell]:
    """Every cell of a grid under its name."""
    return {name((row, column)): (row, column) for row in range(size) for column in range(size)}


def spell(cells: Sequence[Cell]) -> str:
    """A route as a reply: `go b1 b2 c2`."""
    return " ".join(["go", *map(name, cells)])


WHEREABOUTS = re.compile(r"^here (\S+) goal ", re.MULTILINE)
ROUTE = re.compile(r"^[ \t]*go((?:[ \t]+\S+)*)[ \t]*$", re.MULTILINE)


def parse_route(text: str) -> list[str] | None:
    """The words after the last line that starts with `go`; None when there is no such line."""
    routes = ROUTE.findall(text)
    return routes[-1].split() if routes else None


def is_step(task: Maze, here: Cell, there: Cell) -> bool:
    """Whether two cells are neighbours and the second is open."""
    return abs(here[0] - there[0]) + abs(here[1] - there[1]) == 1 and there not in task.walls


def walk(task: Maze, here: Cell, reply: Reply, max_moves: int) -> tuple[Cell, bool]:
    """Where a reply's route leads, and whether every word of it was a legal move.

    The walk ends at the goal, at the first illegal word and after `max_moves`. A reply that was
    cut or has no route stays where it is and is not legal.
    """
    route = parse_route(reply.text) if reply.finish == "stop" else None
    if route is None:
        return here, False
    named = cells_by_name(task.size)
    for word in route[:max_moves]:
        there = named.get(word)
        if there is None or not is_step(task, here, there):
            return here, False
        here = there
        if here == task.goal:
            break
    return here, len(route) <= max_moves


def progress(task: Maze, before: Cell, after: Cell, legal: bool, max_moves: int) -> float:
    """The local reward of a walk; the formula of the module's docstring."""
    distance = task_distances(task)
    best = min(distance[before], max_moves)
    made = (distance[before] - distance[after]) / best
    return max(-1.0, made) - 1.0 - (0.0 if legal else ILLEGAL)


@lru_cache(maxsize=4096)
def map_view(task: Maze, here: Cell) -> str:
    """The whole grid, a line a row with `#` for a wall, then `here b2 goal f5`.

    The grid comes first, so that prompts on one grid share their beginning.
    """
    return _view(task, here, range(task.size), range(task.size))


@lru_cache(maxsize=4096)
def map_nearby(task: Maze, here: Cell) -> str:
    """The same of the cells around a position alone."""
    return _view(task, here, range(here[0] - 1, here[0] + 2), range(here[1] - 1, here[1] + 2))


def _view(task: Maze, here: Cell, rows: Sequence[int], columns: Sequence[int]) -> str:
    lines = (
        "".join(f" {name((row, column))}" if is_open(task, (row, column)) else " #" for column in columns)
        for row in rows
    )
    return "\n".join((*lines, f"here {name(here)} goal {name(task.goal)}"))


def near_view(task: Maze, here: Cell, idea: Reply) -> str:
    """The cells around a position, the goal's name and the proposal."""
    return f"{map_nearby(task, here)}\nproposal: {quote(idea)}"


def full_view(task: Maze, here: Cell, idea: Reply) -> str:
    """The whole grid and the proposal."""
    return f"{map_view(task, here)}\nproposal: {quote(idea)}"


def quote(reply: Reply) -> str:
    """Another role's words, on one line and bounded."""
    return " ".join(reply.text[:LONGEST_QUOTE].split())


def is_open(task: Maze, cell: Cell) -> bool:
    """Whether a cell is in the grid and no wall."""
    return 0 <= cell[0] < task.size and 0 <= cell[1] < task.size and cell not in task.walls


@lru_cache(maxsize=4096)
def task_distances(task: Maze) -> dict[Cell, int]:
    """Moves to the goal from every cell that can reach it."""
    return distances(task.size, task.walls, task.goal)


def distances(size: int, walls: frozenset[Cell], goal: Cell) -> dict[Cell, int]:
    """Breadth-first distances to a goal, in moves; cells that cannot reach it are absent."""
    steps = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for there in neighbours(cell, size):
            if there not in walls and there not in steps:
                steps[there] = steps[cell] + 1
                queue.append(there)
    return steps


def neighbours(cell: Cell, size: int) -> list[Cell]:
    """The cells of the grid one move away, walls or not."""
    row, column = cell
    around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    return [(r, c) for r, c in around if 0 <= r < size and 0 <= c < size]


def shortest(task: Maze, here: Cell, rng: Random) -> list[Cell]:
    """A random shortest path to the goal, without the first cell."""
    distance = task_distances(task)
    route: list[Cell] = []
    while here != task.goal:
        here = rng.choice(
            [cell for cell in neighbours(here, task.size) if distance.get(cell, 1 << 30) < distance[here]]
        )
        route.append(here)
    return route


def straight(here: Cell, goal: Cell, rng: Random | None = None) -> list[Cell]:
    """A line to the goal as if there were no walls: along the row first, or in random order."""
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
