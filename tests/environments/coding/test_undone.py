"""What main may take off again, as numbers: the pairs of programs are in test_evidence.py."""

from __future__ import annotations

from fractions import Fraction

import pytest

from coterie_worlds.coding.cooperation.replaced import beside, given_back, other_of_its_type
from coterie_worlds.coding.cooperation.undone import Shares, ends_of, is_mask, neighbours
from coterie_worlds.sandbox.duet import Exchange, PartnerAnswer


def played(answer: object, result: object, args: tuple = ([1, 2],)) -> Exchange:
    return Exchange({"status": "returned", "value": result}, (PartnerAnswer(args, (answer,)),))


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (3, [(3, 3, 0)]),
        ([4], [([4], [4], 0)]),
        ([4, 5, 6], [([4, 5, 6], [4, 5, 6], 0), (4, 6, 3)]),
        ("abc", [("abc", "abc", 0), ("a", "c", 3), ("a", "c", 3)]),
        ({"tuple": [7, 8]}, [({"tuple": [7, 8]},) * 2 + (0,), (7, 8, 2)]),
        ([[1, 2], [], [3]], [([[1, 2], [], [3]],) * 2 + (0,), ([1, 2], [3], 3), (1, 3, 3)]),
    ],
)
def test_what_a_value_is_to_what_goes_through_it(value, ends):
    assert list(ends_of(value)) == ends


def test_inputs_with_an_item_less_and_with_another():
    assert list(neighbours([[1, 2], "k"])) == [[[2], "k"], [[13, 2], "k"], [[1], "k"], [[1, 14], "k"]]
    assert list(neighbours(["ab"])) == [["b"], ["a"]]
    assert list(neighbours([[1]])) == list(neighbours([5])) == list(neighbours([])) == []
    assert len(list(neighbours(["abcdefgh"]))) == 4


def swapped(args: tuple, answer: int) -> int:
    return other_of_its_type([], 0, args, {"status": "returned", "value": answer})["value"]


@pytest.mark.parametrize("factor", [1, -1, 3])
def test_a_result_that_is_a_sum_is_two_shares(factor):
    args = ([1, 2],)
    true, other = played(10, factor * 10 + 7, args), played(10, factor * swapped(args, 10) + 7, args)
    share = Shares.of(true, other)
    assert share == Shares(Fraction(factor), Fraction(factor * 10), Fraction(7))
    assert share.other(played(2, 5)) == Shares(Fraction(factor), Fraction(factor * 2), Fraction(5 - factor * 2))


def test_what_is_no_whole_number_or_was_asked_twice_is_no_sum():
    true = played(10, 17)
    for odd in (played(1.5, 17), played(10, "17"), played(True, 17), Exchange(true.answer, true.told * 2)):
        assert Shares.of(odd, true) is None
        assert Shares.of(true, odd) is None


def sums(*changes: tuple[int, int]) -> list[tuple[Shares, list[Shares | None]]]:
    one = Fraction(1)
    return [
        (Shares(one, Fraction(at), Fraction(0)), [Shares(one, Fraction(at + aux), Fraction(main))])
        for at, (aux, main) in enumerate(changes)
    ]


def test_a_mask_is_what_mains_part_always_answers():
    assert is_mask(sums((2, -2), (5, -4), (1, 6), (3, -3)))
    assert not is_mask(sums((2, 0), (5, -4), (1, 6), (3, -3)))  # three of four
    assert is_mask(sums((2, -2), (5, -4), (1, 6), (3, -3), (0, 0), (0, 9)))  # the last two say nothing
    assert not is_mask(sums((2, -2), (5, -4), (1, 6)))  # too few
    (share, _), *_ = sums((1, 1))
    assert is_mask([(share, [None]), (share, [share])])  # aux says the same of all


PAIRS = [{"tuple": [3, 9]}, {"tuple": [1, 1]}, {"tuple": [2, 4]}]


@pytest.mark.parametrize(
    ("value", "places"),
    [
        (PAIRS, {(None, 0)}),  # the items in their order, beside others
        (PAIRS[::-1], set()),
        ([[9, 3], [1, 1], [4, 2]], {(None, 1)}),
        ([[3, 1, 2], 3], {(0,)}),  # the largest is an item, and not what was given
        ({"tuple": [[3, 1, 2], 6]}, {(0,)}),
        ({"dict": [["data", [3, 1, 2]], ["size", 3]]}, {(0,)}),
        ([3, 4, 6], set()),  # sums so far begin like the items
        ([3, 1, 2], set()),  # the whole of it: an echo
        (7, set()),
    ],
)
def test_what_an_answer_gives_back(value, places):
    assert given_back([[3, 1, 2]], value) == places


def test_beside_what_is_given_back_all_is_another():
    answer = {"status": "returned", "value": [[3, 1, 2], 3]}
    told = beside([], 0, [[3, 1, 2]], answer)["value"]
    assert told[0] == [3, 1, 2]
    assert told[1] != 3
    pairs = beside([], 0, [[3, 1, 2]], {"status": "returned", "value": PAIRS})["value"]
    assert [pair["tuple"][0] for pair in pairs] == [3, 1, 2]
    assert all(pair["tuple"][1] != old["tuple"][1] for pair, old in zip(pairs, PAIRS, strict=True))
