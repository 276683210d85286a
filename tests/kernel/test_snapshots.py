"""Snapshots: what a state's names share is shared in the copy, and what `play` holds is changed in place."""

from coterie.kernel.snapshots import copied, put


def test_a_value_that_play_holds_is_changed_in_place():
    said = ["a"]
    state = {"said": said, "n": 1}
    kept = copied(state)
    said.append("b")
    state["n"] = 2
    put(kept, state)
    assert state == {"said": ["a"], "n": 1}
    assert state["said"] is said
    said.append("c")
    assert kept["said"] == ["a"], "a snapshot may be used again"


def test_two_names_of_one_value_stay_so():
    one = ["a"]
    state = {"x": one, "y": one}
    kept = copied(state)
    state["y"] = ["other"]
    put(kept, state)
    assert state == {"x": ["a"], "y": ["a"]}
    assert state["x"] is state["y"]


def test_two_values_do_not_become_one():
    """Two names share a value now and did not then: neither may be written to through the other."""
    state = {"x": ["a"], "y": ["b"]}
    kept = copied(state)
    state["y"] = state["x"]
    put(kept, state)
    assert state == {"x": ["a"], "y": ["b"]}
    assert state["x"] is not state["y"]
