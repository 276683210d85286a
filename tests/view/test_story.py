"""What a run's story says, an episode as a conversation, and a task's tree, each by hand."""

import math
from dataclasses import replace

import pytest

from coterie.kernel.episode import (
    Answered,
    Asked,
    Called,
    Ended,
    Log,
    Noted,
    Returned,
    Rewarded,
    Sample,
    TurnBegan,
)
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.scene import Reply
from coterie.report.conversation import Part, conversation
from coterie.report.curves import MOST_ROWS, chart
from coterie.report.story import duration, glance, sparkline, story
from coterie.report.trees import GroupSeen, MemberSeen, Token, seen, shifted
from coterie.run.records import Played


def validated(*figures: tuple[float, float, float]) -> list[dict[str, float]]:
    return [
        {"step": 10.0 * at, "validation/success": mean, "validation/success_low": low, "validation/success_high": high}
        for at, (mean, low, high) in enumerate(figures)
    ]


START, END, SAME, WORSE = (0.4, 0.35, 0.45), (0.9, 0.85, 0.95), (0.44, 0.39, 0.49), (0.2, 0.15, 0.25)


@pytest.mark.parametrize(
    ("figures", "mark", "says"),
    [
        ((), "open", "not been validated"),
        ((START,), "open", "solved 40.0% of validation tasks at the start; nothing later"),
        (
            (START, END),
            "good",
            "Yes: it solved 40.0% of validation tasks at the start and 90.0% (85.0% to 95.0%) at step 10.",
        ),
        ((START, END, SAME), "bad", "Since then it has fallen to 44.0%"),
        ((START, END, (0.84, 0.78, 0.88)), "good", "Yes"),
        ((END, END), "told", "There was little to learn: it solved 90.0%"),
        ((START, SAME), "bad", "The difference may be chance"),
        ((START, START), "bad", "Not so far: it solved 40.0% of validation tasks at the start, and never more since."),
        (
            (START, WORSE),
            "bad",
            "No, it has unlearned: it solved 40.0% of validation tasks at the start and 20.0% now.",
        ),
    ],
)
def test_whether_it_learned_is_told_by_intervals(figures, mark, says):
    answer = story(validated(*figures), ("a",), 20)[0]
    assert (answer.question, answer.mark, answer.place) == ("Did it learn?", mark, "curves")
    assert says in answer.text


def muted(role: str, change: float, low: float, high: float) -> dict[str, float]:
    return {
        "step": 5.0,
        f"mute/{role}/change": change,
        f"mute/{role}/change_low": low,
        f"mute/{role}/change_high": high,
    }


def test_a_role_earns_its_place_when_muting_it_surely_costs_success():
    def told(*lines):
        return [one for one in story(lines, ("a", "b"), 20) if one.place == "roles"]

    assert [one.mark for one in told()] == ["open"]
    good = told(muted("a", -0.3, -0.35, -0.25) | muted("b", -0.1, -0.15, -0.05))
    assert [one.mark for one in good] == ["good"]
    assert "Change of success at step 5: without a -30.0 points (-35.0 to -25.0); without b -10.0" in good[0].text
    assert [one.mark for one in told(muted("a", -0.3, -0.35, -0.25) | muted("b", 0.0, -0.01, 0.01))] == ["bad"]
    unsure = muted("a", -0.3, -0.35, -0.25) | muted("b", -0.01, -0.06, 0.04)
    assert [one.mark for one in told(unsure)] == ["open"], "it could be worth something, and nothing"
    assert [one.mark for one in told(muted("a", -0.3, -0.35, -0.25))] == ["open"], "of the other nothing is known"
    later = [muted("a", 0.0, -0.01, 0.01) | muted("b", -0.1, -0.15, -0.05), muted("a", -0.3, -0.35, -0.25)]
    assert [one.mark for one in told(*later)] == ["good"], "the latest probe of each counts"
    assert not [one for one in story([], ("a",), 20) if one.place == "roles"], "one role alone is the team"


def test_what_is_wrong_now_is_said_and_what_it_cost():
    lines = [{"step": 0.0, "time/eval": 20.0}, {
        "step": 1.0, "groups/total": 4.0, "groups/live": 0.0, "rollout/no_reward": 1.0, "time/step": 180.0,
        "time/rollout": 100.0, "time/update": 50.0, "time/eval": 30.0, "budget/sampled_tokens": 1234567.0,
    }]  # fmt: skip
    answers = {one.place: one for one in story(lines, ("a",), 20)}
    assert answers["warnings"].mark == "bad"
    assert answers["warnings"].text.startswith("Play gave no reward in any episode.")
    assert answers["cost"].text == "1 of 20 steps, 1,234,567 sampled tokens, 3 min: rollout 50%, update 25%, eval 25%."
    short = {one.place: one for one in story([], ("a",), 20)}["warnings"]
    assert (short.mark, "look back on 10 steps, and there are 0" in short.text) == ("open", True)
    fine = [{"step": float(at), "groups/total": 4.0, "groups/live": 3.0} for at in range(1, 21)]
    assert {one.place: one for one in story(fine, (), 20)}["warnings"].mark == "good"


def test_tokens_move_where_both_probabilities_are_numbers():
    def group(*members):
        seen = [
            MemberSeen(
                "", [Token("x", share, 0) for share in shares], value=0.0, parts="", advantage=0.0, strength=0.0,
                committed=False, cut=False,
            )
            for shares in members
        ]  # fmt: skip
        return GroupSeen(0, "k", "a", "0@0", "", "prompt", live=True, prompt="", members=seen)

    moved = shifted(group((0.5, 0.5, 0.5, 0.0), ()), [[math.log(0.25), math.nan, 1000.0, -1.0], []])
    first, second, third, last = moved.members[0].tokens
    assert (first.ratio, first.shift) == (pytest.approx(0.5), 1)
    assert [(token.ratio, token.shift) for token in (second, last)] == [(None, 2)] * 2
    assert third.shift == 4
    assert not moved.members[1].tokens, "one without tokens stays as it is"


def test_a_terminal_has_the_curve_and_the_answers_that_need_no_page():
    assert glance(validated((0.1, 0.05, 0.2)), ("a",), 5)[0].startswith("Did it learn? "), "one point is no curve"
    assert glance([], ("a",), 5)[0] == "Did it learn? It has not been validated yet."
    told = glance(validated((0.1, 0.05, 0.2), (0.6, 0.5, 0.7), (1.0, 0.9, 1.0)), ("a", "b"), 5)
    assert told[0] == "validation 0.100 ▁▅█ 1.000"
    assert told[1].startswith("Did it learn? Yes: it solved 10.0% of validation tasks at the start and 100.0%")
    assert [line.partition("? ")[0] for line in told[1:]] == [
        "Did it learn", "Does every role earn its place", "Is anything wrong", "What did it cost",
    ]  # fmt: skip
    assert len(sparkline([0.5] * 100)) == 24
    assert sparkline([-1.0, 0.0, 0.999, 2.0]) == "▁▁██"


def test_durations_are_said_as_people_say_them():
    assert [duration(seconds) for seconds in (7, 119, 600, 9000)] == ["7 s", "119 s", "10 min", "2.5 h"]


def test_an_episode_is_a_conversation():
    log = Log("0", "t", 1, (
        TurnBegan(0), Asked({"a": "who?", "b": "what?"}),
        Answered({"a": Reply("a", "me"), "b": Reply("b", "th", "length")}),
        Called("m.f", [1, "x"]), Returned("y"), Called("m.g", []), Returned(error=("ValueError", "no")),
        Rewarded("a", 0, 0.5, "format"), Rewarded(None, None, -1.0, "task"), Noted("moves", 3.0),
        Ended(False, "late"), Ended(True, "solved"),
    ))  # fmt: skip
    assert list(conversation(log)) == [
        Part("turn", "turn 0"),
        Part("said", "me", "a", "who?", 0),
        Part("said", "th", "b", "what?", 0, cut=True),
        Part("call", "m.f(1, 'x')"), Part("call", "→ 'y'"),
        Part("call", "m.g()"), Part("call", "failed: ValueError: no", good=False),
        Part("reward", "format +0.500 for a"), Part("reward", "task -1.000 for the team", good=False),
        Part("metric", "moves = 3"), Part("end", "not solved: late", good=False), Part("end", "solved"),
    ]  # fmt: skip


def sample(text: str, *likely: float) -> Sample:
    ids = tuple(range(len(likely)))
    return Sample("a", "p", 0, (7, 8), ids, tuple(map(math.log, likely)), "stop", text)


def test_a_tree_tells_tokens_apart_by_their_probability_and_members_by_their_advantage():
    members = (
        Member((sample("yes", 0.95, 0.6, 0.2, 0.05, 0.001),), (1.0,), {"task": 1.0}),
        Member((sample("no", 0.5),), (0.0,)),
    )
    group = Group(Key("t", 0, "0@0", "a"), "prompt", members, committed=0)
    played = Played("train", 0, Collected((group,), ()), ((2.0, -1.0),))
    tree = seen(played, {"p": lambda token: f"<{token}>"}, lambda number: f"{number}/")
    (one,) = tree.groups
    assert [token.kind for token in one.members[0].tokens] == [0, 1, 2, 3, 4]
    assert [token.text for token in one.members[0].tokens] == ["<0>", "<1>", "<2>", "<3>", "<4>"]
    assert one.prompt == "<7><8>"
    assert [(each.advantage, each.strength, each.committed) for each in one.members] == [
        (2.0, 1.0, True),
        (-1.0, 0.5, False),
    ]
    assert (one.live, tree.live, one.best, tree.solved) == (True, 1, 1.0, False)
    cut = Member((replace(sample("so", 0.5), finish="length"),), (0.5,))
    whole = Group(Key("t", 0, "*", "a"), "task", (Member((sample("no", 0.5), cut.samples[0]), (0.0,)), cut))
    two = seen(Played("train", 0, Collected((whole,), ()), ((0.0, 0.0),)), {"p": str}).groups[0]
    assert [member.cut for member in two.members] == [True, True]
    assert [member.cut for member in one.members] == [False, False]
    assert two.prompt == "", "of whole episodes it is not the prompt of all"
    assert 'href="0/"' in tree.picture
    assert "href" not in seen(played).picture
    assert not seen(played).groups[0].members[0].tokens, "whose text nobody knows"


def test_the_numbers_behind_a_picture_are_thinned_and_keep_the_last():
    lines = [{"step": float(step), "x": step / 10} for step in range(101)]
    made = chart("x", [lines, [{"step": 100.0, "x": 7.0}]], ["one", "two"])
    assert made is not None
    assert len(made.rows) <= MOST_ROWS + 1
    assert made.rows[0] == (0.0, [0.0, None])
    assert made.rows[-1] == (100.0, [10.0, 7.0])
    assert chart("y", [lines], ["one"]) is None


def test_a_curve_over_tokens_begins_with_none_and_a_metric_of_ones_own_may_end_in_low():
    lines = [{"step": 0.0, "x": 1.0}, {"step": 5.0, "x": 2.0, "budget/sampled_tokens": 70.0}, {"step": 6.0, "x": 3.0}]
    made = chart("x", [lines], ["one"], "budget/sampled_tokens")
    assert made is not None
    live = [{"step": 1.0, "groups/live": 3.0, "groups/total": 4.0}]
    assert list(chart("groups/live_share", [live], ["one"]).rows) == [(1.0, [0.75])]
    assert (made.name, list(made.rows)) == ("x, by sampled tokens", [(0.0, [1.0]), (70.0, [2.0])])
    own = [{"step": 1.0, "bid": 1.0, "bid_low": 0.5, "ask_low": 7.0}]
    assert chart("bid", [own], ["one"]) is not None
    assert chart("bid_low", [own], ["one"]) is None, "it could be the interval of bid"
    assert chart("ask_low", [own], ["one"]) is not None
