"""Players that read a prompt and nothing else."""

import re
from collections import deque
from random import Random

from coterie_worlds.games.sudoku import Sudoku


def latest(prompt) -> str:
    """What was said last, of a conversation."""
    return prompt[-1].content


def answer(prompt) -> str:
    """A right answer to any game's board."""
    text = latest(prompt)
    board = text.partition("\nproposal: ")[0]
    if "box" in board:
        return boxes(board)
    return route(board) if "goal" in board else digits(board)


def grid(board: str) -> set[tuple[int, int]]:
    """Every open cell, by the names that the board shows."""
    return {place(word) for line in board.splitlines() if line.startswith(" ") for word in line.split() if word != "#"}


def place(word: str) -> tuple[int, int]:
    return int(word[1:]), ord(word[0]) - ord("a")


def named(cell: tuple[int, int]) -> str:
    return f"{chr(ord('a') + cell[1])}{cell[0]}"


def around(cell):
    return [(cell[0] + 1, cell[1]), (cell[0] - 1, cell[1]), (cell[0], cell[1] + 1), (cell[0], cell[1] - 1)]


def route(board: str) -> str:
    cells = grid(board)
    here, goal = map(place, re.search(r"here (\S+) goal (\S+)", board).groups())
    came = {here: here}
    queue = deque([here])
    while queue:
        cell = queue.popleft()
        for there in around(cell):
            if there in cells and there not in came:
                came[there] = cell
                queue.append(there)
    path = []
    while goal != here:
        path.append(goal)
        goal = came[goal]
    return " ".join(["go", *map(named, reversed(path))])


def boxes(board: str) -> str:
    cells = grid(board)
    here, box, goal = map(place, re.search(r"here (\S+) box (\S+) goal (\S+)", board).groups())
    start = here, box
    came = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state[1] == goal:
            path = []
            while came[state] is not None:
                path.append(state[0])
                state = came[state]
            return " ".join(["go", *map(named, reversed(path))])
        player, it = state
        for there in around(player):
            beyond = (2 * there[0] - player[0], 2 * there[1] - player[1])
            new = (there, beyond) if there == it else (there, it)
            if there in cells and new[1] in cells and new not in came:
                came[new] = state
                queue.append(new)
    raise AssertionError("no solution")


def digits(board: str) -> str:
    cells = re.findall(r"([a-i]\d) (\d\??|\.)", board)
    known = {place(name): int(sign[0]) for name, sign in cells if sign != "."}
    size = 4 if len(cells) == 16 else 9
    side = int(size**0.5)
    order = [place(name) for name, sign in cells if sign == "."]

    def fits(cell, digit):
        return not any(
            its == digit
            and other != cell
            and (
                other[0] == cell[0]
                or other[1] == cell[1]
                or ((other[0] - 1) // side, other[1] // side) == ((cell[0] - 1) // side, cell[1] // side)
            )
            for other, its in known.items()
        )

    def fill(at):
        if at == len(order):
            return True
        for digit in range(1, size + 1):
            if fits(order[at], digit):
                known[order[at]] = digit
                if fill(at + 1):
                    return True
                del known[order[at]]
        return False

    assert fill(0)
    return " ".join(["set", *(f"{named(cell)} {known[cell]}" for cell in order)])


def junk(world, task, rng: Random) -> str:
    """An answer in the right form that means nothing, or none."""
    if rng.random() < 0.2:
        return rng.choice(("", "go", "set", "go zz", "\x00", "go " + "a1 " * 999, "set a1", "[" * 50))
    names = [f"{column}{row}" for column in "abcdef" for row in range(1, 7)]
    if isinstance(world, Sudoku):
        return " ".join(["set", *(f"{rng.choice(names[:16])} {rng.randint(0, 5)}" for _ in range(rng.randint(1, 16)))])
    return " ".join(["go", *(rng.choice(names) for _ in range(rng.randint(1, 12)))])
