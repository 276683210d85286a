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
    ("one", "other"),
    [
        ("2-2", "2+2"), ("2 - 2", "2 2"), ("2--2", "2-2"), ("a>b", "a<b"), (">b", "a>b"), (">5", "<5"), ("> 5", "< 5"),
        ("a=b", "a!=b"), ("a\N{NOT EQUAL TO}b", "a=b"), ("-.5", ".5"), (".5", "5"), ("C", "C++"), ("C#", "C++"),
        ("\u0915\u093f", "\u0915\u0940"), ("-x", "x"), ("!x", "x"), ("5!", "5"), ("50%", "50"), ("1/2", "1 2"),
        ("5\u00b2", "52"), ("char*", "char"), ("2*3", "2 3"), ("R&D", "R D"), ("|x|", "x"), ("vitamin A", "vitamin"),
        ("A\N{BLACK SPADE SUIT}", "A\N{BLACK HEART SUIT}"), ("5'6", "56"), ("\N{EN DASH}7", "7"),
        ("-$5", "$5"), ("-(a+b)", "(a+b)"), ("5-(3+2)", "5(3+2)"),
    ],
)  # fmt: skip
def test_signs_that_carry_meaning_count(one, other):
    assert exact(one, other) == exact(other, one) == 0
    assert exact(one, one) == exact(f" {one}. ", one) == 1
    assert choices([one, other], 2) == (one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + 1", "x+1"), ("2 - 2", "2-2"), ("10\N{EN DASH}20", "10-20"), ("**Paris**.", "Paris"), ("# Paris", "Paris"),
        ("- Paris", "Paris"), ("$5", "5"), ("the 'Paris'", "Paris"), ("(C++)", "C++"), ("covid-19", "covid 19"),
        ("Paris - France", "Paris, France"), ("x\u00b2", "x^2"), ("The *C++* language", "C++ language"),
    ],
)  # fmt: skip
def test_signs_that_only_adorn_do_not_count(one, other):
    assert exact(one, other) == exact(other, one) == 1


@pytest.mark.parametrize(
    ("reply", "answer", "earned"),
    [
        ("7", "7", 1), ("The answer is 7.", "7", 1), ("7, so it is 7", "7", 1), ("3 + 4 = 7", "7", 0),
        ("1 2 3 4 5 6 7 8 9", "7", 0), ("6 or 7", "7", 0), ("none", "7", 0), ("-7", "7", 0), ("7.0", "7", 1),
        ("1,200", "1200", 1), ("3,5", "3.5", 1), ("1/2", "0.5", 1), ("1/2", "1/2", 1), ("1/0", "1", 0),
        ("$7", "7 dollars", 1), ("x7", "7", 0), ("1e1", "10", 1), ("9" * 5000, "9", 0), ("\N{MINUS SIGN}7", "-7", 1),
        ("7" + " 7" * 100_000, "7", 0), ("4x13", "4", 0), ("3.14.15", "3.14", 0), ("2,5,7", "2.5", 0),
        ("5\u00b2", "5", 0), ("13\u0663", "13", 0), ("1e400", "1", 0), ("1,200,5", "1200.5", 0), ("5km", "5", 1),
        ("7.So it is", "7", 1), ("\N{EN DASH}7", "7", 0), ("1,200.5", "1200.5", 1), ("-.5", "-1/2", 1),
        ("3/4/5", "3/4", 0), ("-$5", "5", 0), ("-$5", "-5", 1),
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
    assert contains("it is New York", "York", ("York", "New York")) == 0


@pytest.mark.parametrize(
    ("reply", "answer", "earned"),
    [
        ("The answer is Paris.", "Paris", 1), ("I think it's Paris", "Paris", 1), ("Paris, Paris", "Paris", 1),
        ("It is York New", "New York", 1), ("yes or no", "yes", 0), ("yes or no", "no", 0), ("yes/no", "yes", 0),
        *(("Paris Rome Oslo Bern Riga Baku", city, 0) for city in ("Paris", "Oslo", "Baku")),
        ("not Paris", "Paris", 0), ("Paris\nRome", "Paris", 0), ("C++", "C", 0), ("-3", "3", 0),
        ("the answer is A", "A", 1),
    ],
)  # fmt: skip
def test_contains_pays_no_list_where_the_other_answers_are_not_known(reply, answer, earned):
    assert contains(reply, answer) == earned


@pytest.mark.parametrize(
    ("reply", "answer", "earned"),
    [
        ("A B", "B", 0), ("A B", "A", 0), ("the answer is A", "A", 1), ("A is right", "A", 1),
        ("the answer is A", "B", 0), ("A, B, C", "C", 0), ("the answer is B", "B", 1),
    ],
)  # fmt: skip
def test_the_option_a_is_no_article(reply, answer, earned):
    assert contains(reply, answer, ("A", "B", "C", "D")) == earned


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
        ('{"b": 2}', "", ("a",), 0), ("[1]", "", ("a",), 0), ('{"a":"anything"}', '[{"a":1}]', ("a",), 0),
        ('{"a": 1}', '{"b": 1}', ("a",), 0), ('{"a": 1}', "1", ("a",), 0), ("``` \n[1]```", "[1]", (), 1),
        ("```json\n\n[1]\n  ```\n", "[1]", (), 1), ("```python\n[1]\n```", "[1]", (), 0), ("```", "[1]", (), 0),
    ],
)  # fmt: skip
def test_json_is_the_same_data_or_has_the_keys(reply, answer, keys, earned):
    assert same_json(reply, answer, keys) == earned


@pytest.mark.parametrize(
    "reply",
    [
        "```" + "\n" * 19_990 + "``x", "```\n" * 5_000, "1," * 10_000, "9" * 20_000, "*a" * 10_000, "* a" * 6_666,
        "-" * 20_000, "the " * 5_000, "a\u0301" * 10_000, "#" * 20_000, "- 1" * 6_666, "1e+" * 6_666, "\u00b2" * 20_000,
        "('" * 10_000, "." * 20_000, "1 -" * 6_666, "a'" * 10_000, "(" * 20_000,
    ],
    ids=lambda reply: repr(reply[:6]),
)  # fmt: skip
def test_a_long_reply_is_compared_in_little_time(reply):
    began = time.monotonic()
    assert exact(reply, "y") == number(reply, "2") == contains(reply, "y") == same_json(reply, "[1]") == 0
    assert time.monotonic() - began < 1


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
    for answer in ('[{"a": 1}]', '{"c": 1}', "1", "null"):
        assert unfit("json", answer, ("a", "b")) == "its answer is no object with a or b"
    assert not unfit("json", '{"b": 1}', ("a", "b"))
    assert unfit("exact", " ") == "its answer is empty"
    assert unfit("contains", "?!") == "its answer has no word"
    assert not unfit("json", "", ("a",))
    assert not any(unfit(name, "7") for name in NAMED)


def test_what_can_be_read_is_told_apart_from_what_is_right():
    assert [readable("number", reply) for reply in ("8", "7 or 8", "")] == [True, False, False]
    assert [readable("json", reply) for reply in ("[1]", "[1", "")] == [True, False, False]
    assert readable("exact", "") is None
