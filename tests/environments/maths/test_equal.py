"""Which answers are equal: line by line what math-verify alone takes for right or wrong, and what never ends."""

import json
import time
from pathlib import Path

import pytest

from coterie_worlds.maths import equal
from coterie_worlds.maths.equal import WORD, alike, boxed, normal, number, same, unequal_golds, words

GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k_test.jsonl"
FORMS = (
    "\\boxed{%s}", "\\boxed{$%s$}", "so \\boxed{%s}. The final answer is 7", "\\boxed{\\$%s}", "\\boxed{%s.00}",
    "\\boxed{%s\\text{ dollars}}", "#### %s", "\\boxed{**%s**}", "<answer>%s</answer>", "\\boxed{%s dollars}",
    "\\boxed{x = %s}",
)  # fmt: skip


@pytest.mark.skipif(not GSM8K.exists(), reason="no shared data")
def test_every_gold_of_gsm8k_is_right_in_many_forms_and_one_more_is_wrong():
    golds = [json.loads(line)["answer"].rpartition("#### ")[2] for line in GSM8K.read_text().splitlines()]
    assert len(golds) == 1319
    for gold in golds:
        whole = int(gold.replace(",", ""))
        for form in FORMS:
            assert same(gold, boxed(form % gold)), (gold, form)
            assert not same(gold, boxed(form % (whole + 1))), (gold, form)
        assert same(gold, boxed(f"\\boxed{{{whole:,}}}"))
        assert same(gold, boxed("\\boxed{" + f"{whole:,}".replace(",", "\\,") + "}"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{1} and \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{1", ""),
        ("no box", ""),
        ("<think>\\boxed{1}</think> \\boxed{2}", "2"),
        ("<think>\\boxed{1}</think> nothing", ""),
        ("<answer>3", ""),
        ("#### 18\nthank you", "18"),
        ("\\boxed{}", ""),
        ("\\boxed{" + "{" * 2000, ""),
        ("<answer>5</answer> no: \\boxed{6}", "6"),
    ],
)
def test_an_answer_is_what_the_last_mark_holds(text, answer):
    assert boxed(text) == answer


RIGHT = [
    ("1000", "1\\,000"), ("1000", "1{,}000"), ("50\\%", "50"), ("5", "x=5"), ("0.5", "\\frac{1}{2}"),
    ("1-\\frac{1}{\\mathrm{e}}", "1-\\frac{1}{e}"), ("(1,2)", "( 1, 2 )"), ("3,4", "3,4"), ("2\\pi", "2\\pi"),
    ("10^{3}", "1000"), ("\\sqrt{8}", "2\\sqrt{2}"), ("p-q", "p-q"), ("\\text{Evelyn}", "Evelyn"),
    ("\\text{(C)}", "(C)"),
    ("x^2+2x+1", "(x+1)^2"), ("6 - 5i", "6-5i"), ("3\\sqrt{13}", "\\sqrt{117}"), ("\\dfrac{14}{3}", "14/3"),
    ("90^\\circ", "90"), ("1,-2", "-2,1"),
    ("\\sqrt{2},3", "3 or \\sqrt{2}"), ("11_2", "11_{2}"), ("y=2x+3", "2x+3"), ("-\\frac{1}{2}", "-0.5"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
    ("(-\\infty,2]\\cup[3,\\infty)", "(-\\infty,2]\\cup[3,\\infty)"),
    ("1/2", "\\frac12"), ("7/2", "3\\frac{1}{2}"), ("-7/2", "-3\\frac12"), ("1500", "1.5 \\times 10^3"), ("0.5", "2/4"),
    ("18", "18 dollars"), ("5 km", "5"), ("5 km", "5 kilometers"),
    ("5 km", "5\\text{ km}"), ("1 pen", "1 pens"), ("\\binom{6}{2}x", "15x"),
]  # fmt: skip
WRONG = [
    ("0", "1\\,000"), ("0", "1\\;000"), ("0", "1 000"), ("18", "17=18"), ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),
    ("1e-7", "2e-7"), ("1-\\frac{1}{\\mathrm{e}}", "1+\\frac{1}{\\mathrm{e}}"), ("0.5", "50%"), ("50", "50\\%"),
    ("(1,2)", "\\{1,2\\}"), ("1<x<2", "(1,2)"), ("\\frac13", "0.333333"), ("11_2", "11"), ("3,4", "3.4"),
    ("2\\pi", "2"),
    ("10^{3}", "10"), ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(1,2)"), ("6-5i", "6+5i"), ("7", ""), ("7", "\x00"),
    ("7", "7" * 500), ("\\text{Evelyn}", "Eve"), ("\\pi", "\\pi\\ldots"),
    ("5", "3+2"), ("24", "8 * 2 + 4 * 2"), ("24", "48/2"), ("24", "(48)/2"), ("72", "48/2+48"), ("24", "\\frac{48}{2}"),
    ("204", "\\int_0^1 204 dx"), ("7", "\\gcd(14,21)"), ("7", "\\max(7,3)"), ("15x", "\\binom{6}{2}x"),
    ("2", "\\sqrt{4}"),
    ("18", "18 million"), ("18", "18 dozen"), ("18", "18 squared"), ("18", "18 or"), ("18", "18\\text{ or 17 or 16}"),
    ("18", "18\\text{ is wrong, it is 17}"), ("18", "18\\text{ thousand}"), ("x", "x\\text{ or y}"), ("5 cm", "5 km"),
    ("2\\pi", "2\\pi \\text{ or } 3\\pi"), ("\\sqrt{2}", "\\sqrt{2} or 3"), ("2\\pi", "2\\pi million"), ("x", "x or y"),
    ("IV", "VI"), ("no", "on"), ("12", "1 2"), ("12x", "1 2 x"), ("3", "2\\frac{3}{3}"),
    ("\\text{Evelyn}", "nylevE"), ("Rome", "more"), ("New York", "York New"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_right_answers(gold, answer):
    assert same(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_wrong_answers(gold, answer):
    assert not same(gold, answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gold", "answer", "question", "right"),
    [
        ("5\\sqrt{2}", "\\sqrt{50}", "Simplify $\\sqrt{50}$.", False),
        ("(x-2)(x+3)", "x^2 + x - 6", "Factor $x^2+x-6$.", False),
        ("\\frac{\\sqrt3}{3}", "\\dfrac{1}{\\sqrt{3}}", "Rationalize $\\frac{1}{\\sqrt{3}}$.", False),
        ("5\\sqrt{2}", "\\sqrt{50}", "How long is the diagonal of a square of side 5?", True),
        ("\\sqrt{50}", "$\\sqrt{50}$", "Which is larger, $\\sqrt{50}$ or 7?", True),
        ("x^2", "x^{2}", "What is x times x, written as x^2 or otherwise?", True),
    ],
)
def test_a_formula_of_the_question_is_no_answer_unless_it_is_the_gold_one(gold, answer, question, right):
    assert same(gold, answer, question) == right


@pytest.mark.parametrize(
    "piece", ["_", "-", "{", "}", "\\", "$", "%", "a", "a ", "a_", "\\text{", "1 ", "(", "^\\circ", "\\%"]
)
def test_no_pattern_takes_longer_than_its_text(piece):
    """One of underscores took twice as long with each: sixty were the end of a run."""
    text = f"abc{piece * 400}"[:399] + "!"
    began = time.monotonic()
    normal(text)
    words(text)
    alike(text, "7")
    WORD.fullmatch(text)
    assert not same("7", text)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "tower",
    [
        "10^{10^{10}}", "2^{3^{4^5}}", "9^9^9", "2^{(3)^{(9)^{9}}}", "\\sqrt{10^{10^{10}}}", "5!!!", "((5!)!)!",
        "{{5!}!}!", "1000000!", "2^{1000000}", "\\frac{10^{10^{10}}}{3}", "3^{5!}!",
    ],
)  # fmt: skip
def test_towers_and_chains_of_factorials_are_wrong_without_being_worked_out(tower, monkeypatch):
    monkeypatch.setattr(equal, "_verified", lambda gold, answer: pytest.fail("it is worked out"))
    assert not same("7\\pi", tower)
    assert same(tower, tower), "as the gold answer writes it"


@pytest.mark.slow
def test_one_that_is_worked_out_for_too_long_ends_alone():
    """The kernel ends the process that compares; the one that it was forked from answers on."""
    assert same("2\\pi", "\\pi + \\pi")
    warm = [process.pid for process in equal.verifiers()._idle]
    assert not same("7\\pi", "9^{\\frac{9^9}{1}}")
    assert same("3\\pi", "\\pi + 2\\pi")
    assert [process.pid for process in equal.verifiers()._idle] == warm


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile", ["10^{10^{10}}", "1000000!", "(" * 300, "+".join(f"x^{{{n}}}" for n in range(60)), "\\int" * 90]
)
def test_what_never_ends_is_wrong_in_seconds_and_the_next_is_compared_as_ever(hostile):
    began = time.monotonic()
    assert not same("7\\pi", hostile)
    assert time.monotonic() - began < 30
    assert same("2\\pi", "\\pi + \\pi")


def test_numbers_and_what_is_left_out_of_them():
    assert [str(number(text)) for text in ("1,000", "-2.50", ".5", "2e3", "\\frac{3}{6}", "4 / 8")] == [
        "1000", "-5/2", "1/2", "2000", "1/2", "1/2",
    ]  # fmt: skip
    assert [number(text) for text in ("", "1,00", "3,4", "1/0", "x", "1" * 999, "٣x")] == [None] * 7
    assert [normal(text) for text in ("$18$", "\\$18", "18 dollars.", "**18**", "n = 18", "18\\text{ cm}^2")] == [
        "18", "18", "18", "18", "18", "18\\text{ cm}^2",
    ]  # fmt: skip
    assert alike("18.0", "$18")
    assert alike("Two  words", "two words")
    assert not alike("18", "x")


def test_golds_that_are_not_equal_to_themselves_are_found():
    assert unequal_golds(["18", "\\frac{", "2\\pi", "", "1 = 2 = 3"]) == {3: ""}
