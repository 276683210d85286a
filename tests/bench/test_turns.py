"""The game whose gradient is known: by hand, and that an unbiased method meets it."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest

from benchmarks.turns import GAMES, GOES, HEAD, METHODS, PAGE, TAIL, Game, cosine, margin, truth, update
from coterie.algorithms.mas_grpo import MASGRPO


def test_the_true_gradient_by_hand():
    """Only the end pays 1. At turn 2 going on is worth 1, at turn 1 0.7, at turn 0 0.6 x 0.7."""
    ends = truth(GAMES["only the end pays"])
    assert ends == pytest.approx([0.25 * 0.42, 0.5 * 0.24 * 0.7, 0.5 * 0.6 * 0.21 * 1.0])


def test_it_is_the_slope_of_the_expected_payoff():
    payoffs, step = GAMES["a detour pays"], 1e-6

    def expected(logits):
        goes, reached, total = [1 / (1 + 2.718281828459045**-logit) for logit in logits], 1.0, 0.0
        for payoff, go in zip(payoffs, goes, strict=False):
            total, reached = total + reached * (1 - go) * payoff, reached * go
        return total + reached * payoffs[-1]

    from math import log

    at = [log(go / (1 - go)) for go in GOES]
    for turn, slope in enumerate(truth(payoffs)):
        more = [logit + step * (place == turn) for place, logit in enumerate(at)]
        assert (expected(more) - expected(at)) / step == pytest.approx(slope, abs=1e-5)


def test_whole_episodes_against_their_mean_have_its_direction_and_size():
    """Centred, K episodes of a task give (K - 1) / K of K times the gradient."""
    payoffs = GAMES["going on pays"]
    batches = [update(MASGRPO(num_generations=4, advantage="center"), Game(payoffs=payoffs), range(at, at + 100))
               for at in range(0, 800, 100)]  # fmt: skip
    mean = [fmean(turn) / 100 / 3 for turn in zip(*batches, strict=True)]
    assert mean == pytest.approx(truth(payoffs), abs=0.02)
    assert cosine(mean, truth(payoffs)) > 0.99
    assert cosine([1, 0], [0, 0]) == 0.0


def test_the_margin_of_a_cosine_is_that_of_its_slope():
    """The mean update (1, m) has the cosine 1 / sqrt(1 + m²) with (1, 0): its error is that of m times the slope."""
    across = [0.5 + 0.001 * (index * 7 % 20) for index in range(20)]
    mean = fmean(across)
    slope = mean / (1 + mean**2) ** 1.5
    by_hand = 2.093 * stdev(across) / math.sqrt(20) * slope
    assert margin([(1.0, one) for one in across], (1.0, 0.0)) == pytest.approx(by_hand, rel=0.01)


def test_the_page_has_the_words_and_rows_that_would_be_written():
    lines = PAGE.read_text().split("\n")
    assert lines[: len(HEAD)] == HEAD
    assert lines[-len(TAIL) - 1 :] == [*TAIL, ""]
    table = lines[len(HEAD) : -len(TAIL) - 1]
    assert table[0] == f"| | {' | '.join(GAMES)} |"
    assert [row.split(" | ")[0] for row in table[2:]] == [f"| {title}" for title in METHODS]
