"""sudoku: puzzles with one solution, givens that stay, splits by what puzzles have in common."""

from collections import Counter
from itertools import combinations, product
from random import Random

import pytest

from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.scene import Reply
from coterie_worlds.games.grids import candidates, canonical, clash, drawn, peers, solutions, symmetries, units
from coterie_worlds.games.sudoku import (
    Puzzle,
    Sudoku,
    by_reason,
    by_rows,
    filled,
    in_words,
    parse,
    places,
    read,
    spell,
    view,
)

# 1 . | . 4      a1 b1 c1 d1
# . . | 1 .
# ----+----
# . 1 | . .
# 4 . | . 1
GRID = (1, 0, 0, 4, 0, 0, 1, 0, 0, 1, 0, 0, 4, 0, 0, 1)
SOLVED = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
PUZZLE = Puzzle("t", "train", size=4, grid=(1, 0, 3, 4, 0, 4, 0, 0, 2, 0, 0, 3, 0, 0, 2, 0), solution=SOLVED)


def says(text: str, finish="stop") -> Reply:
    return Reply("planner", text, finish)


def test_units_and_peers_by_hand():
    assert len(units(4)) == 12
    assert peers(4)[0] == (1, 2, 3, 4, 5, 8, 12)
    assert {len(its) for its in peers(9)} == {20}
    assert candidates(PUZZLE.grid, 1, 4) == [2]
    assert not clash(SOLVED, 4)
    assert not clash(PUZZLE.grid, 4)
    for cell in (2, 8, 5):  # as in a row, a column, a box
        assert clash(tuple(1 if at in (0, cell) else 0 for at in range(16)), 4)


def test_there_are_288_grids_and_one_is_a_solution_of_its_puzzle():
    assert len(solutions((0,) * 16, 4, 1000)) == 288
    assert solutions(PUZZLE.grid, 4) == [SOLVED]
    assert len(solutions(GRID, 4, 10)) > 1
    assert solutions((1, 1, *[0] * 14), 4) == []


@pytest.mark.parametrize(
    "givens",
    [4, pytest.param(5, marks=pytest.mark.slow), *(pytest.param(many, marks=pytest.mark.long) for many in (6, 7, 8))],
)
def test_unique_puzzles_are_as_many_as_are_known(givens):
    """Counted by others: classes of unique puzzles under relabelling and 128 symmetries, by givens."""
    every = solutions((0,) * 16, 4, 1000)
    classes = set()
    for grid in {canonical(grid, 4): grid for grid in every}.values():
        for kept in combinations(range(16), givens):
            there = [other for other in every if all(other[cell] == grid[cell] for cell in kept)]
            puzzle = tuple(digit if cell in kept else 0 for cell, digit in enumerate(grid))
            assert len(solutions(puzzle, 4)) == min(2, len(there))
            if len(there) == 1:
                classes.add(canonical(puzzle, 4))
    assert len(classes) == {4: 13, 5: 96, 6: 376, 7: 711, 8: 1040}[givens]


def test_there_are_128_ways_to_move_a_4_x_4_grid_and_each_makes_a_grid():
    ways = symmetries(4)
    assert len(ways) == len(set(ways)) == 128
    for way in ways:
        moved = tuple(SOLVED[cell] for cell in way)
        assert all(len({moved[cell] for cell in unit}) == 4 for unit in units(4))
        assert canonical(moved, 4) == canonical(SOLVED, 4)
    renamed = tuple({1: 3, 2: 1, 3: 4, 4: 2, 0: 0}[digit] for digit in PUZZLE.grid)
    assert canonical(renamed, 4) == canonical(PUZZLE.grid, 4)


@pytest.mark.slow
def test_a_thousand_puzzles_have_one_solution_each():
    for index in range(1000):
        task = Sudoku().task("train", index)
        assert solutions(task.grid, 4) == [task.solution]
        assert sum(map(bool, task.grid)) == 7


def test_nine_by_nine():
    task = Sudoku(size=9, givens=40).task("test", 0)
    assert solutions(task.grid, 9) == [task.solution]
    assert sum(map(bool, task.grid)) == 40
    assert drawn(9, 17, Random(0)) is None


@pytest.mark.slow
def test_splits_share_no_puzzle_by_any_name():
    seen = [{canonical(Sudoku().task(split, index).grid, 4) for index in range(150)} for split in SPLITS]
    assert sum(map(len, seen)) == len(set.union(*seen))
    for split, its in zip(SPLITS, seen, strict=True):
        assert all(split_of(grid) == split for grid in its)


def test_givens_that_cannot_be_say_how_many_may():
    for size, givens in ((4, 16), (9, 21)):
        with pytest.raises(ValueError, match="puzzle has"):
            Sudoku(size=size, givens=givens)


@pytest.mark.parametrize(
    ("text", "finish", "changed", "legal"),
    [
        ("set b1 2 a2 3", "stop", {1: 2, 4: 3}, True),
        ("I think\nset b1 2\nset b1 3", "stop", {1: 3}, True),  # the last one counts
        ("set b1 . a2 3", "stop", {4: 3}, True),
        ("set a1 1", "stop", {}, False),  # a given, even as it is
        ("set b1 2 a1 2 a2 3", "stop", {1: 2}, False),
        ("set b1 5", "stop", {}, False),
        ("set b1 0", "stop", {}, False),
        ("set e1 1", "stop", {}, False),
        ("set b1", "stop", {}, False),
        ("set", "stop", {}, True),
        ("b1 2", "stop", {}, False),
        ("set b1 2", "length", {}, False),
        ("set " + "b1 2 " * 17, "stop", {}, False),  # more than there are cells
    ],
)
def test_answers_by_hand(text, finish, changed, legal):
    grid = tuple(changed.get(cell, digit) for cell, digit in enumerate(PUZZLE.grid))
    assert Sudoku().move(PUZZLE, PUZZLE.grid, says(text, finish)) == (grid, legal)


def test_what_was_filled_may_be_filled_anew_and_what_was_given_may_not():
    once, _ = filled(PUZZLE, PUZZLE.grid, parse("set b1 3"))
    again, legal = filled(PUZZLE, once, parse("set b1 2"))
    assert (again[1], legal) == (2, True)
    assert filled(PUZZLE, once, parse("set b1 .")) == (PUZZLE.grid, True)


def test_no_answer_that_breaks_a_given_solves():
    """D21: as published any full grid does, the one in the prompt too."""
    rng = Random(0)
    for index in range(100):
        task = Sudoku().task("train", index)
        other = rng.choice([grid for grid in solutions((0,) * 16, 4, 300) if grid != task.solution])
        answer = spell(task, dict(enumerate(other)))
        board, legal = Sudoku().move(task, task.grid, says(answer))
        assert not legal
        assert Sudoku().ended(task, board) == ""
        assert all(digit in (0, board[cell]) for cell, digit in enumerate(task.grid))


def test_worth_by_hand():
    world = Sudoku()
    assert world.worth(PUZZLE, PUZZLE.grid) == 0
    board, _ = filled(PUZZLE, PUZZLE.grid, parse("set b1 2 a2 3 c2 2"))  # of nine two right, one wrong
    assert world.worth(PUZZLE, board) == pytest.approx(1 / 9)
    worse, _ = filled(PUZZLE, PUZZLE.grid, parse("set b1 3 a2 2"))
    assert world.worth(PUZZLE, worse) == pytest.approx(-2 / 9)  # a blind guess costs something at once
    assert world.worth(PUZZLE, SOLVED) == 1
    assert world.ended(PUZZLE, SOLVED) == "solved"


def test_views_can_be_read_back():
    board, _ = filled(PUZZLE, PUZZLE.grid, parse("set b1 2"))
    assert view(PUZZLE, board, True).split("\n")[0] == " 1 2? 3 4"
    assert view(PUZZLE, board, False).split("\n")[:2] == [" a1 1 b1 2? c1 3 d1 4", " a2 . b2 4 c2 . d2 ."]
    for brief in (True, False):
        assert read(PUZZLE, f"[user] x\n[user] {view(PUZZLE, board, brief)}\nproposal: set b1 3", brief) == board


def test_demonstrators_by_hand():
    assert by_reason(PUZZLE, PUZZLE.grid) == {1: 2, 4: 3, 6: 1, 7: 2, 9: 1, 10: 4, 12: 4, 13: 3, 15: 1}
    half, _ = filled(PUZZLE, PUZZLE.grid, parse("set a2 3 c2 1 a4 4"))
    assert by_reason(PUZZLE, half) == {1: 2, 7: 2, 9: 1, 10: 4, 13: 3, 15: 1}
    wrong, _ = filled(PUZZLE, PUZZLE.grid, parse("set b1 3 a2 3"))
    assert by_reason(PUZZLE, wrong) == by_reason(PUZZLE, PUZZLE.grid)  # b1 clashes: anew
    unsure, _ = filled(PUZZLE, PUZZLE.grid, parse("set b1 2 d2 1"))  # d2 is wrong, and nothing clashes
    assert by_reason(PUZZLE, unsure) == {4: 3, 6: 0, 9: 1, 10: 4, 12: 4, 13: 3, 15: 0}
    assert by_rows(PUZZLE, PUZZLE.grid) == {1: 2, 4: 1, 6: 2, 7: 3, 9: 1, 10: 4, 12: 1, 13: 3, 15: 4}
    assert spell(PUZZLE, {1: 2, 4: 0}) == "set b1 2 a2 ."


def test_an_answer_may_name_every_cell_and_no_more():
    cells = " ".join(f"{spot} ." for spot in ["b1", "a2", "c2", "d2", "b3", "c3", "a4", "b4", "d4"])
    for more, legal in (("b1 . " * 7, True), ("b1 . " * 8, False)):
        assert Sudoku().move(PUZZLE, PUZZLE.grid, says(f"set {cells} {more}"))[1] == legal


def test_lessons_show_grids_that_are_empty_right_and_wrong_and_both_hands():
    shown, planned = Counter(), Counter()
    for index in range(60):
        task = Sudoku().task("train", index)
        lessons = list(Sudoku(naive=0.0).lessons(task, Random(index)))
        for at, lesson in enumerate(one for one in lessons if one.role == "proposer"):
            grid = read(task, lesson.prompt, True)
            wrong = sum(digit not in (0, wanted) for digit, wanted in zip(grid, task.solution, strict=True))
            shown[at, "empty" if grid == task.grid else "wrong" if wrong else "right"] += 1
        for lesson in lessons:
            if lesson.role == "planner":
                grid = read(task, lesson.prompt, True)
                heard = lesson.prompt.rpartition("proposal: ")[2]
                planned[heard == spell(task, by_rows(task, grid)), heard == spell(task, by_reason(task, grid))] += 1
    assert shown[0, "empty"] == shown[1, "right"] == shown[2, "right"] == 60
    assert shown[3, "wrong"] > 35
    assert 0.3 < planned.total() / 240 < 0.5
    assert min(planned[True, False], planned[False, True]) > 0.2 * planned.total()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d1 4", ["d1", "4"]),
        ("b1 = 4, c1=2.", ["b1", "4", "c1", "2"]),
        ("row 1, column 2: 3", ["b1", "3"]),
        ("Cell b1 is 4", ["b1", "4"]),
        ("I think\nset b1 4 c1 .", ["b1", "4", "c1", "."]),
        ("b1 1, b1 2, b1 3, b1 4", None),
        ("set b1 1 b1 2", None),
        ("b1 4 or c1 2", None),
        ("not b1 4", None),
        ("1 2 3 4", None),
        ("b1 12", None),
        ("", None),
    ],
)
def test_cells_and_digits_are_read_in_words_and_a_list_of_guesses_is_none(text, words):
    assert in_words(text) == words


def test_a_small_model_is_shown_the_cells_to_fill_and_all_that_they_must_differ_from():
    world = Sudoku(brief=False, max_tokens=16, givens=13)
    task = world.task("train", 0)
    filled_in = next(cell for cell, digit in enumerate(task.grid) if not digit)
    board = tuple(1 if cell == filled_in else digit for cell, digit in enumerate(task.grid))
    seen = world.shown(task, board)
    assert len(seen.splitlines()) == 3
    assert " 1? has " in seen.splitlines()[-1]
    assert read(task, seen, False) == board
    for line in seen.splitlines():
        cell = places(4)[line[:2]]
        named = {int(digit) for digit in line.partition(" has ")[2].removesuffix(" around it").split()}
        assert named == {board[other] for other in peers(4)[cell]} - {0}


def test_a_digit_alone_goes_into_the_first_cell_that_is_shown_and_several_go_nowhere():
    world = Sudoku(brief=False, max_tokens=8, givens=13)
    task = world.task("train", 0)
    first, second, _ = (cell for cell, digit in enumerate(task.grid) if not digit)
    board, legal = world.move(task, task.grid, Reply("planner", "3."))
    assert (board[first], legal) == (3, True)
    board, legal = world.move(task, board, Reply("planner", "2"))
    assert (board[first], board[second], legal) == (3, 2, True)
    for text in ("1 2 3 4", "1, 2", "12", "5", "one", ""):
        assert world.move(task, task.grid, Reply("planner", text)) == (task.grid, False)
    assert world.move(task, task.grid, Reply("planner", "3", "length")) == (task.grid, False)
    assert Sudoku(brief=False, max_tokens=400).move(task, task.grid, Reply("planner", "3")) == (task.grid, False)


@pytest.mark.parametrize("role", ["proposer", "planner"])
@pytest.mark.parametrize("givens", [12, 14, 15])
def test_where_a_reply_is_one_digit_any_guess_earns_more_than_what_is_none(role, givens):
    """A reply that could not be wrong paid best to a model that mostly is, and it learned to say 5, then 6."""
    world = Sudoku(brief=False, max_tokens=4, givens=givens)
    task = world.task("train", 0)
    empty = [cell for cell, digit in enumerate(task.grid) if not digit]
    for digits in product(range(5), repeat=len(empty)):
        board = list(task.grid)
        for cell, digit in zip(empty, digits, strict=True):
            board[cell] = digit
        earned = {}
        for text in ("1", "2", "3", "4", "5", "0", "", "one", "b1"):
            after, legal = world.move(task, tuple(board), Reply(role, text))
            earned.setdefault(legal, []).append(world.local(role, task, tuple(board), after, legal))
        assert max(earned[False]) < min(earned[True]), (digits, earned)


@pytest.mark.parametrize("settings", [{}, {"brief": False, "max_tokens": 400}])
def test_where_a_reply_is_a_line_of_cells_the_penalty_is_that_of_all_games(settings):
    assert Sudoku(givens=14, **settings).penalty(Sudoku(givens=14).task("train", 0)) == 0.2
