"""Sudoku: two roles fill a grid; one proposes digits, one decides.

The task is AT-GRPO's (arXiv:2510.11062): 4 x 4 as published there, or 9 x 9. The published puzzles are random digits,
and most have no solution. The published check ignores the givens, so one grid solves every puzzle. Here a puzzle is a
solved grid from which digits are removed as long as its solution is unique. Givens cannot be overwritten. Puzzles that
differ only in digit names and the order of lines (for 9 x 9: in names and transposition) belong to one split. Answers
have one form: cells and digits.

The value of a grid is the share of right cells minus the share of wrong cells, among the cells to fill. It lies in
[-1, 1], so a guess that is more often wrong than right has a negative value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from coterie.environments.talk import Example
from coterie.errors import ConfigError
from coterie.kernel.environment import Lesson, Split, Task, split_of
from coterie.kernel.scene import Prompt, Reply
from coterie.seeds import seed_of
from coterie_worlds.games.cells import cells_by_name, name
from coterie_worlds.games.game import ILLEGAL, PLANNER, PROPOSER, SOLVED, Game
from coterie_worlds.games.grids import Grid, candidates, canonical, clash, drawn, peers

FEWEST: dict[int, int] = {4: 4, 9: 22}
"""Minimum givens of a puzzle: of 4 x 4 none has fewer, of 9 x 9 cutting cells at random rarely gets there."""
WRONG = (None, 0.0, 0.0, 0.5)
"""Probability of a random digit in a filled cell, by demonstration on one puzzle; None: no cell is filled."""
PLANNER_LESSONS = 0.4
"""Share of lessons that have one for the planner."""
OPEN = "."
"""A cell that is empty, or shall be."""
CELL = re.compile(r"([a-i][1-9]) ([1-9]\??|\.)")
ANSWER = re.compile(r"^[ \t]*set((?:[ \t]+\S+)*)[ \t]*$", re.MULTILINE)
EXAMPLE = "x30 1, y30 ."
"""Example of an answer: no grid has so many rows."""
ROW_COLUMN = re.compile(r"\brow\s*([1-9])\s*,?\s*(?:and\s+)?col(?:umn)?\s*([1-9])\b")
JOINING = re.compile(r"\b(?:set|fill|put|cell|and|then|is|to|the|answer|with)\b|[`*]")
DIGIT = re.compile(r"([1-9])\.?")
PAIR = re.compile(r"([a-z]\d+)[\s:=]+([1-9]|\.)(?!\d)")
PAIRS = re.compile(rf"{PAIR.pattern}(?:[\s,;]+{PAIR.pattern})*")
SOLVED_GRID: Grid = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
EXAMPLE_CELLS = (1, 6, 10, 13)
"""Cells that are empty in the examples; their digits are four different ones."""


@dataclass(frozen=True, slots=True)
class Puzzle(Task):
    """A puzzle, row by row, 0 for empty; and its one solution."""

    size: int = 0
    grid: Grid = ()
    solution: Grid = ()

    def __hash__(self) -> int:
        """Returns a hash of a few fields: the caches below look a puzzle up at every reply."""
        return hash((self.id, self.grid))


class Sudoku(Game):
    """Two roles fill a grid: one proposes digits, one decides."""

    starter: ClassVar[str] = "starter-sudoku"
    minutes: ClassVar = {"steps": 140, "tasks_per_step": 48}

    size: Literal[4, 9] = 4
    """Rows and columns."""
    givens: int = Field(default=7, ge=4, le=80)
    """Number of digits that are given at the start."""
    max_turns: int = Field(default=4, ge=1)
    """Maximum turns of an episode. An episode without a solution then ends as unsolved."""
    max_tokens: int = Field(default=48, ge=4)
    """Maximum tokens per reply. A reply that is cut off counts as malformed."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration takes only the rows into account."""

    @model_validator(mode="after")
    def _possible(self) -> Sudoku:
        fewest, most = FEWEST[self.size], self.size**2 - 1
        if not fewest <= self.givens <= most:
            raise ValueError(f"givens = {self.givens}: a {self.size} x {self.size} puzzle has {fewest} to {most}")
        return self

    def known(self) -> bool:
        """Returns True for 4 x 4, which the starter was taught."""
        return self.size == type(self).model_fields["size"].default

    def task(self, split: Split, index: int) -> Puzzle:
        """Returns the puzzle at a place of a split, drawn until its content falls in that split."""
        return _drawn(self.size, self.givens, split, index)

    def rules(self) -> str:
        """Returns the rules of Sudoku."""
        side = {4: 2, 9: 3}[self.size]
        return (
            f"This is Sudoku: each row, column and {side} x {side} box holds each of the digits 1 to {self.size} once. "
            "A dot is an empty cell, and a digit with a question mark may be changed."
            f"{'' if self.long else ' Each line is a cell to fill in.'}"
        )

    def form(self) -> str:
        """Returns the form of an answer: cells and digits, or one digit; an example lies outside every grid."""
        if not self.long:
            return f"one digit from 1 to {self.size}, for the first of these cells."
        return f"cells and their digits alone, such as, in another grid, `{EXAMPLE}`."

    def examples(self, role: str) -> Sequence[Example]:
        """Returns chats of a cell each, on grids with one empty cell, which no puzzle with fewer givens has."""
        if self.long or self.size != 4 or role not in (PROPOSER, PLANNER) or self.givens >= len(SOLVED_GRID) - 1:
            return ()
        shown: list[Example] = []
        for cell in EXAMPLE_CELLS:
            grid = tuple(0 if at == cell else digit for at, digit in enumerate(SOLVED_GRID))
            puzzle = Puzzle("example", "train", size=4, grid=grid, solution=SOLVED_GRID)
            answer = str(SOLVED_GRID[cell])
            told = self.shown(puzzle, grid)
            if role == PLANNER and not self.solo:
                told = self.planner_sees(puzzle, grid, Reply(PROPOSER, answer))
            shown.append((told, answer))
        return shown

    def begin(self, task: Puzzle) -> Grid:
        """Returns the grid of the givens."""
        return task.grid

    def move(self, task: Puzzle, board: Grid, reply: Reply) -> tuple[Grid, bool]:
        """Returns the grid that a reply leads to, filled up to its first illegal word."""
        if reply.finish != "stop":
            return board, False
        if not self.brief and not self.long and (digit := DIGIT.fullmatch(reply.text.strip())):
            cell = in_order(task, board)[0]
            return filled(task, board, [name(divmod(cell, task.size)), digit[1]])
        words = parse(reply.text) if self.brief else in_words(reply.text)
        if words is None or len(words) > 2 * len(board):
            return board, False
        return filled(task, board, words)

    def worth(self, task: Puzzle, board: Grid) -> float:
        """Returns the share of the cells to fill that are right, less the share that are wrong."""
        filled = [(board[cell], task.solution[cell]) for cell, digit in enumerate(task.grid) if not digit]
        right = sum(digit == wanted for digit, wanted in filled)
        wrong = sum(digit not in (0, wanted) for digit, wanted in filled)
        return (right - wrong) / len(filled)

    def penalty(self, task: Puzzle) -> float:
        """Returns the penalty of an illegal reply; where a reply is one digit, more than any digit can lose.

        With few cells to fill, a guess would otherwise earn less than a reply that is none, and a small model learns
        to say nothing that can be wrong.
        """
        if self.brief or self.long:
            return ILLEGAL
        return ILLEGAL + 2 / task.grid.count(0)

    def ended(self, task: Puzzle, board: Grid) -> str:
        """Returns SOLVED if every cell is right, else nothing."""
        return SOLVED if board == task.solution else ""

    def shown(self, task: Puzzle, board: Grid) -> str:
        """Returns the grid as text; for a small model with instructions, only its cells to fill."""
        return view(task, board, self.brief) if self.brief or self.long else cells_to_fill(task, board)

    def demonstrate(self, role: str, task: Puzzle, prompt: Prompt, rng: Random) -> str:
        """Returns all empty cells by a systematically imperfect hand: what its row lacks, with probability `naive`.

        Else every cell is filled that one digit alone fits by then, and the others are left open: the next turn goes
        on, or begins anew where digits clash. The planner does so too, whatever was proposed.
        """
        seen = str(prompt)
        grid = read(task, seen, self.brief)
        if rng.random() < self.naive:
            return spell(task, by_rows(task, grid))
        return spell(task, by_reason(task, grid))

    def lessons(self, task: Puzzle, rng: Random) -> Iterator[Lesson]:
        """Yields lessons on the task's puzzle, from grids in which some cells are filled, and some of them wrong."""
        for wrong in WRONG:
            grid = list(task.grid)
            empty = [cell for cell, digit in enumerate(grid) if not digit]
            for cell in rng.sample(empty, 0 if wrong is None else rng.randint(1, len(empty))):
                grid[cell] = rng.randint(1, task.size) if rng.random() < (wrong or 0) else task.solution[cell]
            seen = self.shown(task, tuple(grid))
            yield Lesson(self.roles[0], seen, self.demonstrate(self.roles[0], task, seen, rng))
            if not self.solo and rng.random() < PLANNER_LESSONS:
                hand = by_rows if rng.random() < 0.5 else by_reason
                heard = self.planner_sees(task, tuple(grid), Reply(PROPOSER, spell(task, hand(task, tuple(grid)))))
                yield Lesson(PLANNER, heard, self.demonstrate(PLANNER, task, heard, rng))


@lru_cache(maxsize=4096)
def _drawn(size: int, givens: int, split: Split, index: int) -> Puzzle:
    """Returns the puzzle at a place of a split; kept, because validation has the same again and again."""
    rng = Random(seed_of("sudoku", size, givens, split, index))
    for _ in range(2000):
        puzzle = drawn(size, givens, rng)
        if puzzle and split_of(canonical(puzzle[0], size)) == split:
            return Puzzle(f"{split}-{index}", split, size=size, grid=puzzle[0], solution=puzzle[1])
    raise ConfigError(
        f"sudoku: no {size} x {size} puzzle with {givens} givens was found for {split}; set givens higher"
    )


def parse(text: str) -> list[str] | None:
    """Returns the words after the last line that starts with `set`; None when there is no such line."""
    answers = ANSWER.findall(text)
    return answers[-1].split() if answers else None


def in_words(text: str) -> list[str] | None:
    """Returns the cells and digits of a reply, in pairs, if its last line holds only these and what joins them.

    `b1 4, d1 2`, `b1 = 4` and `row 1, column 2: 4` are read, beside the line that `parse` reads. A line that gives one
    cell two digits is None: it is a list of guesses.
    """
    lines = [line for line in text.rpartition("</think>")[2].splitlines() if line.strip()]
    if not lines:
        return None
    if (words := parse(lines[-1])) is None:
        line = ROW_COLUMN.sub(lambda at: f"{chr(ord('a') + int(at[2]) - 1)}{at[1]}", lines[-1].lower())
        line = JOINING.sub(" ", line).strip(" .,;")
        if not PAIRS.fullmatch(line):
            return None
        words = [part for pair in PAIR.findall(line) for part in pair]
    pairs = set(zip(words[::2], words[1::2], strict=False))
    return words if len({cell for cell, _ in pairs}) == len(pairs) else None


def filled(task: Puzzle, grid: Grid, words: list[str]) -> tuple[Grid, bool]:
    """Returns a grid after pairs of a cell and a digit, up to the first illegal one, and True if there is none."""
    named = places(task.size)
    digits = {str(digit) for digit in range(1, task.size + 1)}
    cells = list(grid)
    for word, digit in zip(words[::2], words[1::2], strict=False):
        cell = named.get(word)
        if cell is None or task.grid[cell] or digit not in digits | {OPEN}:
            return tuple(cells), False
        cells[cell] = 0 if digit == OPEN else int(digit)
    return tuple(cells), len(words) % 2 == 0


@lru_cache(maxsize=4)
def places(size: int) -> dict[str, int]:
    """Returns every cell's place in a grid, by name."""
    return {word: row * size + column for word, (row, column) in cells_by_name(size).items()}


@lru_cache(maxsize=4096)
def view(task: Puzzle, grid: Grid, brief: bool) -> str:
    """Returns a grid as prompts show it, a line a row: ` a1 1 b1 . c1 3? d1 2`.

    Brief: ` 1 b1 3? 2`, a word a cell, which a small model finds by its place.
    """
    size = task.size

    def shown(cell: int) -> str:
        word = name(divmod(cell, size))
        digit = str(grid[cell]) if task.grid[cell] else f"{grid[cell]}?" if grid[cell] else ""
        return f" {digit or word}" if brief else f" {word} {digit or OPEN}"

    return "\n".join("".join(shown(row * size + column) for column in range(size)) for row in range(size))


def in_order(task: Puzzle, grid: Grid) -> list[int]:
    """Returns every cell that was not given, empty ones first."""
    return sorted((cell for cell, digit in enumerate(task.grid) if not digit), key=lambda cell: (grid[cell] > 0, cell))


@lru_cache(maxsize=4096)
def cells_to_fill(task: Puzzle, grid: Grid) -> str:
    """Returns every cell that was not given, empty ones first, and the digits around it: for a small model.

    `d1 . has 1 2 3 around it` is a cell with 1, 2 and 3 in its row, its column or its box.
    """
    lines: list[str] = []
    for cell in in_order(task, grid):
        around = sorted({grid[other] for other in peers(task.size)[cell]} - {0})
        sign = f"{grid[cell]}?" if grid[cell] else OPEN
        lines.append(f"{name(divmod(cell, task.size))} {sign} has {' '.join(map(str, around))} around it")
    return "\n".join(lines)


def read(task: Puzzle, seen: str, brief: bool) -> Grid:
    """Returns the grid that a prompt shows last."""
    board = seen.rpartition("[user] ")[2].partition("\nproposal: ")[0]
    if brief:
        return tuple(int(word[0]) if word[0].isdigit() else 0 for word in board.split())
    signs = dict(CELL.findall(board))
    return tuple(
        int(signs.get(word, str(task.grid[cell])).strip("?").replace(OPEN, "0"))
        for word, cell in places(task.size).items()
    )


def spell(task: Puzzle, digits: dict[int, int]) -> str:
    """Returns digits by cell as a reply, 0 for one that is left open: `set b1 4 c1 . d1 2`."""
    return " ".join(["set", *(f"{name(divmod(cell, task.size))} {digit or OPEN}" for cell, digit in digits.items())])


def by_reason(task: Puzzle, grid: Grid) -> dict[int, int]:
    """Returns every empty cell in turn, with the digit that alone fits it by then, or left so.

    Where digits clash it begins anew: every cell is empty that was not given.
    """
    start = task.grid if clash(grid, task.size) else grid
    cells = list(start)
    told: dict[int, int] = {}
    for cell, digit in enumerate(start):
        if not digit:
            fitting = candidates(tuple(cells), cell, task.size)
            told[cell] = cells[cell] = fitting[0] if len(fitting) == 1 else 0
    return told


def by_rows(task: Puzzle, grid: Grid) -> dict[int, int]:
    """Returns every empty cell with a digit that its row lacks, in order, whatever columns and boxes hold."""
    size = task.size
    told: dict[int, int] = {}
    for row in range(size):
        line = grid[row * size : (row + 1) * size]
        lacking = [digit for digit in range(1, size + 1) if digit not in line]
        told |= dict(
            zip((row * size + column for column, digit in enumerate(line) if not digit), lacking, strict=False)
        )
    return told
