"""Rewards by name: what a reply earns, by hand, and that no reply earns without merit or makes one raise."""

import time

import pytest

from coterie.environments.named_rewards import (
    NAMED,
    choices,
    contains,
    exact,
    matched,
    number,
    readable,
    same_json,
    unfit,
    verdict,
)

CITIES = ("Paris", "Rome", "New York")


@pytest.mark.parametrize(
    ("reply", "answer", "earned"),
    [
        ("Paris", "paris", 1), (" The  PARIS!", "paris", 1), ("It is Paris", "Paris", 0), ("Paris Rome", "Paris", 0),
        ("", "Paris", 0), ("A", "a.", 1), ("the", "a", 0), ("B", "A", 0), ("-3", "3", 0), ("3.", "3", 1),
        ("1.5", "15", 0), ("well-known", "well known", 1), ("dont", "don't", 1), ("U.S.", "us", 1), ("+", "+", 1),
        ("-", "+", 0), ("\ufb01ne", "fine", 1),
    ],
)  # fmt: skip
def test_exact_is_the_answer_apart_from_case_punctuation_articles_and_spaces(reply, answer, earned):
    assert exact(reply, answer) == earned


@pytest.mark.parametrize(
    ("reply", "answer", "earned"),
    [
        ("7", "7", 1), ("The answer is 7.", "7", 1), ("7, so it is 7", "7", 1), ("3 + 4 = 7", "7", 0),
        ("1 2 3 4 5 6 7 8 9", "7", 0), ("6 or 7", "7", 0), ("none", "7", 0), ("-7", "7", 0), ("7.0", "7", 1),
        ("1,200", "1200", 1), ("3,5", "3.5", 1), ("1/2", "0.5", 1), ("1/2", "1/2", 1), ("1/0", "1", 0),
        ("$7", "7 dollars", 1), ("x7", "7", 0), ("1e1", "10", 1), ("9" * 5000, "9", 0), ("\N{MINUS SIGN}7", "-7", 1),
        ("7" + " 7" * 100_000, "7", 0),
    ],
)  # fmt: skip
def test_number_is_the_only_number_of_a_reply(reply, answer, earned):
    assert number(reply, answer) == earned


@pytest.mark.parametrize(
    ("reply", "answer", "earned"),
    [
        ("The answer is Paris.", "Paris", 1), ("Paris", "Paris", 1), ("Rome", "Paris", 0), ("York new", "New York", 1),
        ("Paris, Rome or New York", "Paris", 0), ("Paris or Rome", "Paris", 0), ("yes no", "yes", 1),
        ("one two three four five six seven", "seven", 0), ("one two three four five six", "six", 1),
        ("York", "New York", 0), ("ha ha", "ha ha ha", 0), ("", "Paris", 0),
    ],
)  # fmt: skip
def test_contains_has_the_answers_words_little_else_and_no_other_answer(reply, answer, earned):
    # a reply to an answer of one word has at most 2 x 1 + 4 = 6 words
    assert contains(reply, answer, CITIES) == earned


def test_contains_pays_no_list_of_a_tables_answers():
    assert contains("yes no", "yes", ("yes", "no")) == contains("yes no", "no", ("yes", "no")) == 0
    assert contains("it is New York", "New York", ("York", "New York")) == 1, "a part of the right answer is no other"


def test_answers_of_a_table_are_known_only_where_they_are_few():
    assert choices(["No", "yes", "no.", "Yes"], 2) == ("No", "yes")
    assert choices(["a1", "b1", "c1"], 2) == ()


@pytest.mark.parametrize(
    ("reply", "answer", "keys", "earned"),
    [
        ('{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}', (), 1), ('{"a": true}', '{"a": 1}', (), 0),
        ("[1, 2]", "[2, 1]", (), 0),
        ("```json\n[1]\n```", "[1]", (), 1), ("so [1]", "[1]", (), 0), ("[NaN]", "[NaN]", (), 0), ("", "[1]", (), 0),
        ("[" * 9000, "[1]", (), 0), ("[" * 900 + "]" * 900, "[1]", (), 0),
        ('{"a": 1, "c": 0}', '{"a": 1, "b": 2}', ("a",), 1),
        ('{"a": 2}', '{"a": 1}', ("a",), 0), ('{"a": 2}', "", ("a",), 1),
        ('{"b": 2}', "", ("a",), 0), ("[1]", "", ("a",), 0),
    ],
)  # fmt: skip
def test_json_is_the_same_data_or_has_the_keys(reply, answer, keys, earned):
    assert same_json(reply, answer, keys) == earned


def test_a_pattern_matches_all_of_a_reply_and_one_that_explodes_ends():
    assert matched(r"[ab]+\d", " aab7\n") is True
    assert matched(r"[ab]+\d", "aab7 or so") is False
    began = time.monotonic()
    assert matched(r"(a+)+b", "a" * 60) is None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("ACCEPT", True), ("Yes, it is.", True), ("**yes**", True), ("accepted", True), ("no", False),
        ("Reject: 7", False),
        ("It is right, yes", None), ("", None), ("yesterday", None),
    ],
)  # fmt: skip
def test_a_verdict_is_the_first_word(reply, meant):
    assert verdict(reply) is meant


def test_an_answer_that_no_reply_could_give_is_refused_with_the_reason():
    assert unfit("number", "about 3 or 4") == "its answer is not one number"
    assert unfit("json", "{") == unfit("json", "{", ("a",)) == "its answer is not JSON"
    assert unfit("exact", " ") == "its answer is empty"
    assert unfit("contains", "?!") == "its answer has no word"
    assert not unfit("json", "", ("a",))
    assert not any(unfit(name, "7") for name in NAMED)


def test_what_can_be_read_is_told_apart_from_what_is_right():
    assert [readable("number", reply) for reply in ("8", "7 or 8", "")] == [True, False, False]
    assert [readable("json", reply) for reply in ("[1]", "[1", "")] == [True, False, False]
    assert readable("exact", "") is None
