"""One answer, or one calculation, read from ordinary words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie_worlds.maths.replies import stated, worked


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("4 * 3 = 12. The answer is 12.", "12"),
        ("The answer is 12 pens", "12"),
        ("the answer is 3/4.", "3/4"),
        ("The final answer is: $1,200$", "1,200"),
        ("answer: -3", "-3"),
        ("#### 12", "12"),
        ("so \\boxed{7}", "7"),
        ("**12**", "12"),
        ("So there are 45 keys.", "45"),
        ("x = 8", "8"),
        ("7 - (1 + 3) = 3", "3"),
        ("4 + 48 = 9. The answer is 9.", "9"),
        ("<think>The answer is 4.</think>The answer is 5.", "5"),
        ("It is 11, 12 or 13.", ""),
        ("The answer is 1. The answer is 2.", ""),
        ("1\n2\n3", ""),
        ("1. 2. 3.", ""),
        ("The answer is not 12.", ""),
        ("It isn't 12", ""),
        ("7 - ( 1 + 3 )", ""),
        ("", ""),
        ("twelve", ""),
    ],
)
def test_the_answer_of_a_reply_is_the_one_number_that_it_ends_with(text, answer):
    assert stated(text) == answer


@pytest.mark.parametrize(
    ("text", "calculation"),
    [
        ("5 + 4 = 9", "5 + 4"),
        ("5 + 4 = 10", "5 + 4"),
        ("calc 9 + (4 * 8)", "9 + (4 * 8)"),
        ("so\n6 * 2", "6 * 2"),
        ("5 x 9 = 45.", "5 * 9"),
        ("x = 5 + 4", "5 + 4"),
        ("12", "12"),
        ("1 + 1 = 3 + 4", ""),
        ("5 + 4 = 9 and 3", ""),
        ("can 4 + 3 = 7", ""),
        ("1 2 3", ""),
        ("1, 2, 3", ""),
        ("1 / 0", ""),
        ("", ""),
    ],
)
def test_the_calculation_of_a_reply_is_its_last_line(text, calculation):
    assert worked(text) == calculation


@given(st.text(max_size=80) | st.text("0123456789 .=+-*/()$\n", max_size=60))
def test_nothing_that_is_written_raises(text):
    assert isinstance(stated(text), str)
    assert isinstance(worked(text), str)


@given(st.lists(st.integers(0, 60), min_size=2, max_size=20, unique=True), st.sampled_from((" ", ", ", " or ", "\n")))
def test_several_numbers_are_no_answer(numbers, between):
    assert stated(between.join(map(str, numbers))) == ""
    assert stated(f"The answer is {between.join(map(str, numbers))}") == "" or between == "\n"
