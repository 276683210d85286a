"""What a decision earned: which rewards lie in its window, by hand."""

import pytest

from coterie.kernel.episode import Answered, Asked, Rewarded, TurnBegan, value
from coterie.kernel.scene import Reply

# a speaks twice (points 0 and 2), b between; each reward is a power of two, so that a sum says which are in it
EVENTS = (
    TurnBegan(0),
    Asked({"a": "?"}),
    Answered({"a": Reply("a", "x")}),
    Rewarded("a", 0, 1.0, "now"),
    Rewarded(None, None, 2.0, "team"),
    Asked({"b": "?"}),
    Answered({"b": Reply("b", "y")}),
    Rewarded("b", 1, 4.0, "now"),
    Rewarded("a", 0, 8.0, "late"),
    TurnBegan(1),
    Asked({"a": "?"}),
    Answered({"a": Reply("a", "z")}),
    Rewarded("a", 2, 16.0, "now"),
    Rewarded(None, None, 32.0, "team"),
)


@pytest.mark.parametrize(
    ("point", "role", "horizon", "expected"),
    [
        (0, "a", "point", 1 + 2),
        (0, "a", "turn", 1 + 2 + 8),
        (0, "a", "episode", 1 + 2 + 8 + 16 + 32),
        (1, "b", "turn", 4),  # a's late reward belongs to another's sample
        (1, "b", "episode", 4 + 32),
        (2, "a", "turn", 16 + 32),
        (0, None, "turn", 1 + 2 + 4 + 8),
    ],
)
def test_a_window_holds_what_came_after_the_answer_and_before_its_end(point, role, horizon, expected):
    assert value(EVENTS, point, role, horizon).total == expected


def test_a_local_reward_of_another_point_of_the_same_role_is_not_this_ones_within_a_turn():
    """Two questions to a in one turn, and a reward that comes late for the first: the second does not earn it."""
    events = (
        Asked({"a": "?"}),
        Answered({"a": Reply("a", "x")}),
        Asked({"a": "?"}),
        Answered({"a": Reply("a", "y")}),
        Rewarded("a", 0, 1.0, "for the first"),
        Rewarded("a", 1, 2.0, "for the second"),
    )
    assert value(events, 0, "a", "turn").total == 1
    assert value(events, 1, "a", "turn").total == 2
    assert value(events, 0, "a", "episode").total == 1 + 2
    assert value(events, 1, "a", "point", team_weight=9).parts == {"for the second": 2.0}
