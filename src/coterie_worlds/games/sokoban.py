"""Sokoban: two roles push boxes onto goals; one proposes a walk, one decides.

The task is AT-GRPO's (arXiv:2510.11062): 6 x 6 with one box as published there, or levels of any size from files
(Boxoban's). The following is ours. A reply names the cells that the player walks through. A level takes at least
`min_pushes` pushes, since random moves solve many levels of one push. Only the end of a walk counts. An answer with
more moves than a level can need is not played; otherwise 250 random moves would solve a third of the easy levels.

Let m(s) be the number of moves of a shortest solution from position s. The value of s is w(s) = max(0, 1 - m(s) /
m(start)). Without a solution it is 0, and the episode ends. If a board has too many positions to compute m, m is the
minimum number of pushes that the boxes need, each as if it were alone. A deadlock is then a box that can never reach a
goal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import ClassVar

from pydantic import Field

from coterie.environments.published.plays import PlaysData
from coterie.errors import ConfigError
from coterie.kernel.environment import Lesson, Split, split_of
from coterie.kernel.scene import Prompt, Reply
from coterie.seeds import seed_of
from coterie_worlds.games.boxes import (
    MOST_BOXES,
    Board,
    Position,
    board,
    canonical,
    drawn_board,
    picture,
    search,
    step,
)
from coterie_worlds.games.cells import MOST, Cell, cells_by_name, drawn, name, parse_route, spell, straight
from coterie_worlds.games.game import PLANNER, PROPOSER, SOLVED, quote
from coterie_worlds.games.levels import Level, Levels
from coterie_worlds.games.walks import Walk

SLACK, TIMES = 10, 3
"""Terms of the maximum moves of an episode: TIMES those of a solution, and SLACK."""
UNKNOWN = 400
"""Maximum moves of an episode on a board that has too many positions to look at."""
TRIES = 24
"""Placings on one board that are looked at: those that can be solved are demonstrated."""
PLANNER_LESSONS = 0.25
"""Share of lessons that have one for the planner, whose part is quickly learned."""
DEADLOCK, TOO_LONG = "deadlock", "too many moves"


class Sokoban(PlaysData, Walk):
    """Two roles push boxes onto goals: one proposes a walk, one decides."""

    starter: ClassVar[str] = "starter-sokoban"
    minutes: ClassVar = {"steps": 100, "tasks_per_step": 56}

    data: str = ""
    """Levels: a .txt file in Boxoban's format, rows with a column `level` from a file or the hub, or TRAIN -> TEST of
    two such sources. Empty: levels are generated."""
    size: int = Field(default=6, ge=5, le=MOST)
    """Rows and columns of a generated level, including its border of walls."""
    boxes: int = Field(default=1, ge=1, le=MOST_BOXES)
    """Number of boxes in a generated level."""
    walls: float = Field(default=0.15, ge=0, le=0.5)
    """Probability that a cell within the border is blocked."""
    min_pushes: int = Field(default=3, ge=1)
    """Minimum number of pushes that solve a generated level."""
    max_moves: int = Field(default=8, ge=1)
    """Maximum moves per reply. A reply with more moves is not played."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration walks straight to the box and pushes on, even if this does not help."""

    def inert(self) -> dict[str, str]:
        """Returns the settings of drawn levels as without effect if there is data."""
        drawn = ("size", "boxes", "walls", "min_pushes") if self.data else ()
        return super().inert() | dict.fromkeys(drawn, "data holds the levels")

    def known(self) -> bool:
        """Returns True for drawn levels of one box that are no larger than by default, as the starter was taught."""
        return not self.data and self.boxes == 1 and self.size <= type(self).model_fields["size"].default

    def reader(self) -> Levels:
        """Returns a reader of levels."""
        return Levels()

    def drawn(self, split: Split, index: int) -> Level:
        """Returns the level at a place of a split, drawn until its content falls in that split."""
        return _drawn(self.size, self.boxes, self.walls, self.min_pushes, split, index)

    def rules(self) -> str:
        """Returns the rules of Sokoban."""
        return (
            "The game is Sokoban: push every box onto a goal. The board is shown a line a row: every open cell by its "
            "name, column letter and row number, a wall as #; then where you are (here), the boxes and the goals. A "
            "move goes to the cell directly above, below, left or right. Where a box stands, moving there pushes it "
            "one cell on in the same direction, which must be open and without a box. Boxes cannot be pulled: one in "
            "a corner that is no goal is lost, and with it the game. A walk ends before the first move that must not "
            "be; only where it ends counts, and one with too many moves is not made at all."
        )

    def begin(self, task: Level) -> Position:
        """Returns the position that the picture shows."""
        return board(task.picture).start

    def move(self, task: Level, board: Position, reply: Reply) -> tuple[Position, bool]:
        """Returns the position at the end of a walk, before its first illegal word; a walk too long is not played."""
        route = parse_route(reply.text) if reply.finish == "stop" else None
        if route is None or len(route) > self.max_moves:
            return board, False
        if board.moved + len(route) > cap(task.picture):
            return board._replace(moved=board.moved + len(route)), False
        return walk(task.picture, board, route)

    def worth(self, task: Level, board: Position) -> float:
        """Returns the share of the way to a solution that a position has behind it."""
        return worth(task.picture, board)

    def ended(self, task: Level, board: Position) -> str:
        """Returns SOLVED with every box on a goal, DEADLOCK, TOO_LONG, or nothing while the game goes on."""
        if board.moved > cap(task.picture):
            return TOO_LONG
        if board.boxes == board_of(task).goals:
            return SOLVED
        return DEADLOCK if search(board_of(task)).left(board) is None else ""

    def shown(self, task: Level, board: Position) -> str:
        """Returns the board, as text."""
        return map_view(task.picture, board)

    def planner_sees(self, task: Level, board: Position, idea: Reply) -> str:
        """Returns the planner's prompt in this view."""
        seen = map_view(task.picture, board, near=self.view == "split")
        return f"{seen}\nproposal: {quote(idea)}"

    def demonstrate(self, role: str, task: Level, prompt: Prompt, rng: Random) -> str:
        """Returns a walk by a systematically imperfect hand: straight at the box and on, with probability `naive`.

        Else the proposer gives the beginning of a random shortest solution. The planner follows the proposal if its
        first step can be made ("split"), or if it makes the position worth more; else it is as good as it can see:
        straight at the box ("split") or a shortest solution ("full").
        """
        seen = str(prompt)
        at = position(task, seen)
        if rng.random() < self.naive:
            return spell(headlong(board_of(task), at)[: self.max_moves])
        if "\nproposal: " in seen:
            proposal = seen.rpartition("\nproposal: ")[2]
            after, _ = walk(task.picture, at, parse_route(proposal) or [])
            if after.moved > at.moved if self.view == "split" else worth(task.picture, after) > worth(task.picture, at):
                return proposal
            if self.view == "split":
                return spell(headlong(board_of(task), at, rng)[: self.max_moves])
        return spell(solution(task.picture, at, rng)[: self.max_moves])

    def lessons(self, task: Level, rng: Random) -> Iterator[Lesson]:
        """Yields lessons on the task's board, from anywhere, each a train task of its own."""
        it = board_of(task)
        cells = sorted(it.floor)
        for _ in range(TRIES):
            player, *placed = rng.sample(cells, len(it.goals) + 1)
            at = Position(player, frozenset(placed))
            if at.boxes == it.goals or not search(it).left(at):
                continue
            level = Level(task.id, "train", picture=picture(it, at))
            if split_of(canonical(level.picture)) != "train":
                continue
            seen = map_view(level.picture, at)
            yield Lesson(self.roles[0], seen, self.demonstrate(self.roles[0], level, seen, rng))
            if not self.solo and rng.random() < PLANNER_LESSONS:
                yield self._planner_lesson(level, at, rng)

    def _planner_lesson(self, level: Level, at: Position, rng: Random) -> Lesson:
        env = self.model_copy(update={"view": rng.choice(("split", "full"))})
        if rng.random() < 0.5:
            proposal = spell(headlong(board_of(level), at, rng)[: self.max_moves])
        else:
            proposal = self.demonstrate(PROPOSER, level, map_view(level.picture, at), rng)
        heard = env.planner_sees(level, at, Reply(PROPOSER, proposal))
        return Lesson(PLANNER, heard, env.demonstrate(PLANNER, level, heard, rng))


def board_of(task: Level) -> Board:
    """Returns a level's board."""
    return board(task.picture)


@lru_cache(maxsize=4096)
def _drawn(size: int, boxes: int, walls: float, min_pushes: int, split: Split, index: int) -> Level:
    """Returns the level at a place of a split; kept, because validation has the same again and again."""
    rng = Random(seed_of("sokoban", size, boxes, walls, min_pushes, split, index))
    for _ in range(20_000):
        it = drawn_board(size, boxes, walls, rng)
        if it is None:
            continue
        found = search(it)
        pushes = found.pushes_left(found.mask(it.start.boxes))
        if pushes is None or pushes < min_pushes:
            continue
        text = picture(it, it.start)
        if split_of(canonical(text)) == split and solution_moves(text) is not None:
            return Level(f"{split}-{index}", split, picture=text)
    raise ConfigError(
        f"sokoban: no {size}x{size} level with {boxes} boxes takes {min_pushes} pushes; lower min_pushes, boxes or "
        "walls"
    )


@lru_cache(maxsize=65_536)
def solution_moves(text: str) -> int | None:
    """Returns the moves of a solution, a shortest one if all positions can be looked at; None if none is found."""
    it = board(text)
    if search(it).exact:
        return search(it).left(it.start)
    found = search(it).solve(it.start)
    return None if found is None else len(found)


def cap(text: str) -> int:
    """Returns the maximum moves of an episode; fixed if not all positions are looked at: a search may take minutes."""
    moves = solution_moves(text) if search(board(text)).exact else None
    return UNKNOWN if moves is None else TIMES * moves + SLACK


def solution(text: str, at: Position, rng: Random) -> list[Cell]:
    """Returns a random shortest solution if all positions can be looked at, else any; nothing if none is found."""
    found = search(board(text))
    if found.exact:
        return found.shortest(at, rng) if found.left(at) is not None else []
    return found.solve(at) or []


def worth(text: str, at: Position) -> float:
    """Returns the worth of a position, by the formula of the module's docstring."""
    found = search(board(text))
    left, first = found.left(at), found.left(board(text).start)
    if left is None or not first:
        return 0.0
    return max(0.0, 1.0 - left / first)


def walk(text: str, at: Position, route: list[str]) -> tuple[Position, bool]:
    """Returns the position to which a route of names leads, up to the first illegal word, and True if there is none."""
    it = board(text)
    named = cells_by_name(it.size)
    for word in route:
        after = step(it, at, named[word]) if word in named else None
        if after is None:
            return at, False
        at = after
    return at, True


@lru_cache(maxsize=4096)
def map_view(text: str, at: Position, near: bool = False) -> str:
    """Returns the board, without walls at its sides, or the cells around the player; then what stands where.

    The board comes first, so that prompts on one board share their beginning.
    """
    it = board(text)
    rows, columns = zip(*it.floor, strict=True)
    height, width = range(min(rows), max(rows) + 1), range(min(columns), max(columns) + 1)
    if near:
        row, column = at.player
        height, width = range(row - 1, row + 2), range(column - 1, column + 2)
    boxes, goals = (" ".join(map(name, sorted(cells))) for cells in (at.boxes, it.goals))
    several = "es" if len(it.goals) > 1 else "", "s" if len(it.goals) > 1 else ""
    return f"{drawn(it.floor, height, width)}\nhere {name(at.player)} box{several[0]} {boxes} goal{several[1]} {goals}"


WHEREABOUTS = re.compile(r"^here (\S+) box(?:es)? (.+) goals? ", re.MULTILINE)


def position(task: Level, seen: str) -> Position:
    """Returns the position that a prompt shows."""
    named = cells_by_name(board_of(task).size)
    player, boxes = WHEREABOUTS.findall(seen)[-1]
    return Position(named[player], frozenset(named[box] for box in boxes.split()))


def headlong(it: Board, at: Position, rng: Random | None = None) -> list[Cell]:
    """Returns a route straight at a box that is on no goal, and on in that direction, as far as a goal is away."""
    box = min(at.boxes - it.goals, default=min(at.boxes))
    route = straight(at.player, box, rng)
    before, last = ([at.player, *route])[-2], route[-1]
    way = last[0] - before[0], last[1] - before[1]
    goal = min(it.goals)
    far = max(1, abs(goal[0] - box[0]) if way[0] else abs(goal[1] - box[1]))
    return [*route, *((last[0] + way[0] * n, last[1] + way[1] * n) for n in range(1, far + 1))]
