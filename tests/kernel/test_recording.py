"""A recording: what is said again is compared, and where a play stands is told by its latest answer."""

import pytest

from coterie.errors import EnvError
from coterie.kernel.episode import Answered, Asked, Called, Noted, Returned
from coterie.kernel.recording import Recording
from coterie.kernel.scene import Reply

EVENTS = (
    Asked({"a": "one?"}, None, ()), Answered({"a": Reply("a", "1")}, None), Noted("x", 1.0),
    Called("m:f", [], "none"), Returned(2), Asked({"b": "two?"}, None, ()), Answered({"b": Reply("b", "2")}, None),
)  # fmt: skip


def recorded(count: int) -> Recording:
    recording = Recording("play of t", ())
    for event in EVENTS[:count]:
        recording.add(event)
    return recording


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "from its beginning"),
        (1, "from its beginning"),
        (3, "after the answer of role 'a' at point 0"),
        (5, "after the call of m:f that followed point 0"),
        (6, "after the call of m:f that followed point 1"),
        (7, "after the answer of role 'b' at point 1"),
    ],
)
def test_where_a_play_stands_is_told_by_its_latest_answer_or_call(count, told):
    assert recorded(count).whereabouts() == told


def test_a_replay_repeats_what_was_recorded_and_goes_on():
    again = Recording("play of t", EVENTS[:2])
    asked = again.again(Asked, {"a": "one?"}, None, ())
    assert asked is EVENTS[0]
    again.add(asked)
    assert again.next_recorded() is EVENTS[1]
    assert again.next_recorded() is None
    again.add(EVENTS[2])
    assert (again.events, again.points) == ([*EVENTS[:3]], [0])


def test_another_event_or_an_early_end_is_refused():
    again = Recording("play of t", EVENTS[:2])
    assert again.again(Asked, {"a": "two?"}, None, ()) is None
    with pytest.raises(EnvError, match=r"^play of t is not deterministic: event 0 was .*one"):
        again.add(Asked({"a": "two?"}, None, ()))
    with pytest.raises(EnvError, match=r"it ended before event 0"):
        again.check_end()


def test_a_branch_takes_what_was_before_its_turn():
    branch = Recording("play of t", EVENTS)
    branch.take(recorded(7), events=5, points=1, turn=2)
    assert (branch.events, branch.points) == ([*EVENTS[:5]], [0])
    with pytest.raises(EnvError, match="in a branch that began with turn 2"):
        branch.add(Noted("y", 1.0))
