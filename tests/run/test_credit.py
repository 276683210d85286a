"""What an algorithm of a user's credits a step with is looked at before anything is trained."""

import math
from typing import Any

import pytest

from coterie import Algorithm
from coterie.errors import GroupError
from coterie.run.credit import credited
from tests.algorithms.made import group

GROUPS = [group(1.0, 0.0, task="0"), group(1.0, task="1")]


class Gives(Algorithm):
    """Whatever it is told to."""

    given: Any = None

    def credit(self, groups, state):
        return self.given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "^Gives.credit gives None; return \\(a list of numbers for each group, state\\)"),
        ([(1.0, 0.0), (1.0,)], "return \\(a list"),
        ([1.0, 0.0], "return \\(a list"),
        ((["ab", "c"], {}), "return \\(a list"),
        (([(1.0, 0.0)], {}), "^Gives.credit gives numbers for 1 groups of 2"),
        (([(1.0, 0.0), (math.nan,)], {}), "group 1/0/\\*/a with \\(nan,\\), which is not finite"),
        (([(1.0, 0.0), (1.0,)], None), "remembers None, which a checkpoint cannot keep"),
        (([(1.0, 0.0), (1.0,)], {1: 2.0}), "remembers {1: 2.0}, which a checkpoint cannot keep"),
        (([(1.0, 0.0), (1.0,)], {"seen": (1, 2)}), "which a checkpoint cannot keep"),
        (([(1.0, 0.0), (1.0,)], {"mean": math.inf}), "which a checkpoint cannot keep"),
        (([(1.0, 0.0), (1.0,)], {"made": object()}), "which a checkpoint cannot keep"),
    ],
)
def test_what_is_no_credit_is_one_line(given, message):
    with pytest.raises(GroupError, match=message):
        credited(Gives(given=given), GROUPS, {})


def test_what_is_given_is_numbers_and_the_state_before_stays_as_it_was():
    class Changes(Gives):
        def credit(self, groups, state):
            state["seen"].append(len(groups))
            return [(1, 0), (True,)], state

    before = {"seen": [7]}
    advantages, after = credited(Changes(), GROUPS, before)
    assert advantages == [(1.0, 0.0), (1.0,)]
    assert (before, after) == ({"seen": [7]}, {"seen": [7, 2]})


def test_one_that_credits_nothing_says_so():
    class Nothing(Algorithm):
        """Neither `credit` nor `advantages`."""

    with pytest.raises(GroupError, match="Nothing writes neither advantages nor credit"):
        credited(Nothing(), GROUPS, {})
