"""How many steps a run will have made, where a token budget may end it."""

from __future__ import annotations

import pytest

from coterie.report.pace import steps_of


def lines(*tokens):
    return [{"step": 0}, *({"step": at + 1, "budget/sampled_tokens": total} for at, total in enumerate(tokens))]


@pytest.mark.parametrize(
    ("train", "tokens", "steps"),
    [
        ({"steps": 50}, (10, 20), 50),
        ({"steps": 50, "max_sampled_tokens": 95}, (), 50),
        ({"steps": 50, "max_sampled_tokens": 95}, (10, 20), 10),  # 75 left at 10 a step: 8 more
        ({"steps": 5, "max_sampled_tokens": 95}, (10, 20), 5),
        ({"steps": 50, "max_sampled_tokens": 20}, (10, 20), 2),
        ({"steps": 50, "max_sampled_tokens": 20}, (10, 27), 2),
        ({"steps": 50, "max_sampled_tokens": 20}, (0, 0), 50),
    ],
)
def test_a_budget_ends_a_run_before_its_steps_do(train, tokens, steps):
    assert steps_of(lines(*tokens), train) == steps


def test_the_pace_is_that_of_the_latest_steps():
    """30 steps of 100 tokens and 20 of 10: 50 tokens are five more steps, and not one."""
    totals = [100 * step for step in range(1, 31)]
    totals += [3000 + 10 * step for step in range(1, 21)]
    assert steps_of(lines(*totals), {"steps": 999, "max_sampled_tokens": 3250}) == 55
