"""Which words may stand behind an answer: units that fit the question, and nothing that says another answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie_worlds.maths.equal import same
from coterie_worlds.maths.units import KINDS, LINKS, fits

PENS = "Tom has 20 pens and gives 2 of them away. How many pens are left?"
TOYS = "A toy costs 50 cents. How many dollars do 36 toys cost?"
ROAD = "A train goes at 36 km per hour for 30 minutes. How far does it go?"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (PENS, "18"), (PENS, "18 pens"), (PENS, "18 pen"), (PENS, "18\\text{ pens left}"), (PENS, "18 pens left."),
        (TOYS, "18 dollars"), (TOYS, "\\$18"), (TOYS, "18 USD"), (TOYS, "18 dollars total"), (ROAD, "18 km"),
        (ROAD, "18\\text{ kilometers}"), ("What percent of them is red?", "18%"), ("What percent is it?", "18 \\%"),
        ("One city has 4 schools. In how many cities are 72?", "18 cities"),
    ],
)  # fmt: skip
def test_units_that_a_question_names(question, answer):
    assert same("18", answer, question)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (PENS, "18 wrong"), (PENS, "18 thousands"), (PENS, "18 pi"), (PENS, "18i"), (PENS, "18\\text{ i}"),
        (PENS, "18 pencils"), (PENS, "18 dozens"), (PENS, "18 percent"), (PENS, "18 e"), (PENS, "18 no"),
        (PENS, "18\\text{ or seventeen}"), (PENS, "18 squared pens"), (PENS, "18 false"), (PENS, "18 negative"),
        ("How many minutes does a walk of 2 km take, at twice the speed?", "18 km"), (PENS, "18 ten"),
        ("How many minutes does a walk of 2 km take, at twice the speed?", "18 twice"), (PENS, "18 pairs"),
        (TOYS, "18 cents"), (TOYS, "18 euros"), (ROAD, "18 miles"), (ROAD, "18 m"), ("", "18 pens"),
    ],
)  # fmt: skip
def test_words_that_no_question_asked_for(question, answer):
    assert not same("18", answer, question)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("5 km", "5 kilometres", True), ("5 km", "5 m", False), ("5 pens", "5 red pens", True),
        ("5 pens", "5 pencils", False), ("5 pens", "5 pens and pencils", False), ("5 pens", "5", True),
    ],
)  # fmt: skip
def test_the_unit_of_the_gold_answer_counts_first(gold, answer, right):
    assert same(gold, answer, "Of 9 red pens and 2 pencils, how many m of red pens?") is right


@given(st.sampled_from(KINDS), st.data())
def test_of_units_of_one_kind_only_that_which_is_counted_fits(kind, data):
    """By hand and by chance: the counted unit by all its names, and no other of its kind."""
    units = [unit.split() for unit in kind.split("|")]
    counted = data.draw(st.sampled_from(units))
    said = data.draw(st.sampled_from(units))
    name, word = data.draw(st.sampled_from(counted)), data.draw(st.sampled_from(said))
    assert fits(word, "", f"How many {name} are there, with 3 of each?") is (said is counted)


@given(st.from_regex(r"[a-z]{3,12}", fullmatch=True))
def test_a_word_that_is_neither_asked_for_nor_a_unit_never_fits(word):
    names = {name for kind in KINDS for name in kind.replace("|", " ").split()}
    asked = {each.removesuffix("s") for each in PENS.casefold().strip("?").split()}
    if word.removesuffix("s") not in names | LINKS | asked:
        assert not fits(word, "", PENS)
