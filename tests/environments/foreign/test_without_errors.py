"""What play without errors wins at tic-tac-toe against chance: what docs/results/games.md compares self-play with."""

from functools import cache
from statistics import fmean

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
Board = tuple[int, ...]


def after(board: Board, player: int) -> list[Board]:
    """Every board that a move makes."""
    return [(*board[:at], player, *board[at + 1 :]) for at in range(9) if not board[at]]


def won(board: Board) -> int:
    return next((board[i] for i, j, k in LINES if board[i] and board[i] == board[j] == board[k]), 0)


@cache
def value(board: Board, player: int) -> int:
    """What a game is worth to who moves, where both play as well as can be."""
    if won(board):
        return -1
    return max((-value(then, 3 - player) for then in after(board, player)), default=0)


@cache
def wins(board: Board, player: int, me: int, how: str) -> float:
    """How likely `me` wins against chance.

    how: any move that keeps the value of the game; of those the "worst" or the "best" against chance; or, "response",
    the best of all moves.
    """
    if won(board) or not (boards := after(board, player)):
        return float(won(board) == me)
    if player != me:
        return fmean(wins(then, 3 - player, me, how) for then in boards)
    kept = [then for then in boards if -value(then, 3 - player) == value(board, player)]
    chances = [wins(then, 3 - player, me, how) for then in (boards if how == "response" else kept)]
    return {"any": fmean, "worst": min}.get(how, max)(chances)


def test_play_that_keeps_the_value_of_the_game_wins_anything_from_0_71_to_0_96_against_chance():
    empty = (0,) * 9
    shares = {
        how: round(fmean(wins(empty, 1, me, how) for me in (1, 2)), 3) for how in ("worst", "any", "best", "response")
    }
    assert value(empty, 1) == 0, "a draw"
    assert shares == {"worst": 0.706, "any": 0.873, "best": 0.956, "response": 0.967}
