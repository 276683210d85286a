"""What crosses the border is compared without being built, and as Python would compare it."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie_worlds.sandbox.border import MALFORMED, read
from coterie_worlds.sandbox.plain import DEEPEST, decode, encode
from coterie_worlds.sandbox.values import canonical, is_plain, same, written

numbers = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.0, 2.0**60, 2**60, 1 + 0j, 1j]) | st.booleans()
keys = st.recursive(
    numbers | st.text("ab", max_size=2) | st.none() | st.binary(max_size=1),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    keys,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(keys, max_size=3)
    ),
    max_leaves=8,
)


def crossed(value):
    return json.loads(json.dumps(encode(value)))


@given(keys, keys)
def test_keys_are_told_apart_as_python_tells_them(one, other):
    """In a dict 1, 1.0 and True are one key."""
    assert (canonical(crossed(one)) == canonical(crossed(other))) is (one == other)


@given(st.sets(keys, max_size=4), st.sets(keys, max_size=4))
def test_sets_are_equal_as_in_python(one, other):
    assert same(crossed(one), crossed(other)) is (one == other)
    assert same(crossed(one), crossed(frozenset(one)))


@given(st.dictionaries(keys, st.integers(0, 2), max_size=4), st.dictionaries(keys, st.integers(0, 2), max_size=4))
def test_dicts_are_equal_as_in_python(one, other):
    assert same(crossed(one), crossed(other)) is (one == other)
    assert same(crossed(OrderedDict(one)), crossed(one))


@given(values)
def test_every_value_is_itself_after_crossing_and_plain(value):
    there = crossed(value)
    assert is_plain(there)
    assert same(there, crossed(decode(there)))


@given(values)
def test_what_is_written_reads_back(value):
    shown = written(crossed(value))
    assert same(crossed(value), crossed(eval(shown)))
    assert shown == written(crossed(decode(crossed(value))))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1,), "(1,)"), ([{2: {3, 1}}, set()], "[{2: {1, 3}}, set()]"), (Counter("aa"), "Counter([('a', 2)])"),
        (deque([1]), "deque([1])"), (range(3), "range(0, 3, 1)"), (float("inf"), "inf"), (b"x", "b'x'"),
    ],
)  # fmt: skip
def test_values_are_written_as_python_writes_them(value, shown):
    assert written(crossed(value)) == shown


@pytest.mark.parametrize(("found", "near"), [(0.5 + 4e-7, True), (0.5 + 6e-7, False), (0.5, True)])
def test_a_float_is_met_to_a_millionth(found, near):
    assert same(0.5, found) is near
    assert same(0.0, found - 0.5) is (found == 0.5)  # of nothing, to 1e-9
    assert same(0.0, 9e-10)


def test_either_of_two_is_right():
    wanted = {"either": [[5], 5]}
    assert [same(wanted, found) for found in ([5], 5, [[5]], 6)] == [True, True, False, False]


def test_nothing_is_built_of_what_collides_or_nests():
    """Hashed, the keys would take minutes; followed, the nesting would never end."""
    keys = [at * (2**61 - 1) for at in range(200_000)]
    forged = {"set": [{"frozenset": keys}, *keys]}
    assert is_plain(forged)
    assert not same({"set": [1]}, forged)
    assert not same({"dict": [[1, 2]]}, {"dict": [[key, 2] for key in keys]})
    deep: list = []
    for _ in range(DEEPEST + 3):
        deep = [deep]
    assert not is_plain(deep)


def test_a_table_in_a_key_costs_what_it_says_and_no_more():
    """Quoted once more at every level it would double: thirty levels took all memory there was."""
    nested = {"dict": [["a", 1]]}
    for _ in range(60):
        nested = {"dict": [["a", nested]]}
    assert len(canonical(nested)) < 1000
    assert not same({"dict": [["a", 1]]}, {"dict": [[nested, 1]]})


@pytest.mark.parametrize(
    "forged",
    [
        {"range": [0, 10**30, 1]}, {"complex": [{"float": ["abc"]}, 0]}, {"complex": [10**400, 0]},
        10**4000, {"complex": [{"complex": [10**400, 0]}, 0]}, {"type": ["eval"]}, {"type": [[]]}, {"float": [[]]},
    ],
)  # fmt: skip
def test_what_no_number_could_be_is_no_value(forged):
    assert not is_plain(forged)
    line = json.dumps({"status": "returned", "value": forged})
    assert read(line, ("returned",)) == MALFORMED


@pytest.mark.parametrize("found", [2**1024 - 1, -(2**1024), 2**1023, 10**400])
def test_an_integer_beyond_floats_is_not_near_one(found):
    assert not same(1.5, found)


@pytest.mark.parametrize(
    ("sites", "fits"),
    [
        ([], True), ([[1, True, 1, 2, [3]]], True),
        ([[1, True, 5, {"tuple": [1]}, None], [2, False, 1, 1.5, "a"]], True),
        ({}, False), ([1], False), ([[1, True, 1, 2]], False), ([[True, True, 1, 1, 1]], False),
        ([["1", True, 1, 1, 1]], False), ([[1, 1, 1, 1, 1]], False), ([[1, True, True, 1, 1]], False),
        ([[1, True, 1, {"no": []}, 1]], False), ([[1, True, 1, 1, 1, 1]], False), (None, False),
    ],
)  # fmt: skip
def test_what_a_watched_program_tells_has_its_schema_too(sites, fits):
    line = json.dumps({"status": "seen", "sites": sites})
    assert read(line, ("seen",)) == ({"status": "seen", "sites": sites} if fits else MALFORMED)
    assert read(line, ("returned",)) == MALFORMED
