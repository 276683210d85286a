"""relay: its tasks, its parser, what it pays, and what each player could know."""

from __future__ import annotations

import re
from random import Random

import pytest
from pydantic import ValidationError

from coterie import load_config, train
from coterie.checks.conformance import check
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.episode import Rewarded
from coterie.kernel.scene import Reply
from coterie.run.loaded import headline
from coterie_worlds.relay import Journey, Relay, agreed, knows_enough, worth
from tests.toys import run

# a > c > b > d > a; first knows the arrows of a and c, second those of b and d
SQUARE = Journey("t", "train", arrows="cdba", start="a", hops=3, known=("ac", "bd"))
WORLD = Relay(places=4, shares=(2,), hops=(3,))


def test_the_path_goes_along_the_arrows():
    assert SQUARE.path == "acbd"


@pytest.mark.parametrize(
    ("path", "last", "wanted"),
    [
        ("a", False, 0.0),
        ("ac", False, 1 / 3),
        ("acb", False, 2 / 3),
        ("acbd", False, 1.0),
        ("ad", False, -1 / 3),
        ("add", False, -1 / 3),
        ("acd", False, 0.0),  # one right hop and a wrong one
        ("acd", True, 1 / 3),
        ("ad", True, 0.0),
    ],
)
def test_what_a_path_is_worth_by_hand(path, last, wanted):
    assert worth(SQUARE, path, last=last) == pytest.approx(wanted)


def test_on_the_last_turn_what_was_wrong_before_costs_nothing_more():
    """A wrong hop costs a third. On the last turn it costs nothing any more, before a reply and after it."""
    cursor = Cursor(WORLD.model_copy(update={"max_turns": 2}), SQUARE, 0)

    async def play():
        while (point := await cursor.advance()) is not None:
            cursor.answer({role: Reply(role, "a d") for role in point.roles})

    run(play())
    earned = [event.value for event in cursor.log.events if isinstance(event, Rewarded) and event.role]
    assert earned == pytest.approx([-1 / 3, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a c", "ac"),
        ("path a c b d", "acbd"),
        ("I think\na c", "ac"),
        (" a ", "a"),
        ("", ""),
        ("c b", ""),  # it does not begin at the start
        ("a c b d a", ""),  # one hop too many
        ("a e", ""),  # no such place
        ("a cb", ""),
        ("a c.", ""),
        ("A C", ""),
        ("a c\n", "ac"),
        ("a " * 9999, ""),
        ("\x00", ""),
        ("path", ""),
    ],
)
def test_a_path_is_a_last_line_of_places_from_the_start(text, wanted):
    assert WORLD.said(SQUARE, Reply("first", text)) == wanted
    assert WORLD.said(SQUARE, Reply("first", text, "length")) == ""


def test_a_model_without_training_has_to_mark_its_answer():
    talks = WORLD.model_copy(update={"brief": False})
    assert talks.said(SQUARE, Reply("first", "a c")) == ""
    assert talks.said(SQUARE, Reply("first", "The start is a.\npath a c")) == "ac"


def test_tasks_belong_to_their_split_and_two_roles_see_all_arrows():
    world = Relay()
    kinds = set()
    for split in SPLITS:
        for index in range(200):
            task = world.task(split, index)
            assert task.split == split
            share = len(task.known[0])
            assert len(task.known[1]) == share
            assert set("".join(task.known)) == set("abcdefgh")
            assert len(set(task.path)) == task.hops + 1, "no path meets itself"
            assert task.kind == f"{share} of 8 known, {task.hops} hops"
            kinds.add(task.kind)
    assert len(kinds) == 20
    one = world.task("test", 3)
    assert split_of((one.arrows, one.start, one.hops)) == "test"


def test_all_players_have_the_same_questions_and_see_their_part_of_them():
    team, part, whole = Relay(), Relay(solo=True), Relay(solo=True, shares=(8,))
    for index in range(100):
        tasks = [world.task("test", index) for world in (team, part, whole)]
        assert len({(task.arrows, task.start, task.hops) for task in tasks}) == 1
        assert tasks[0].known[0] == tasks[1].known[0]
        assert tasks[2].known == ("abcdefgh",)
    other = Relay(seed=1)
    pairs = [(team.task("test", index), other.task("test", index)) for index in range(100)]
    assert sum(one.arrows == another.arrows for one, another in pairs) < 10
    assert sum(len(one.known[0]) == len(another.known[0]) for one, another in pairs) < 40, "of five shares"


def test_no_lesson_is_a_question_of_a_test():
    world, rng = Relay(), Random(0)
    seen = set()
    for index in range(300):
        task = world.task("train", index)
        for lesson in world.lessons(task, rng):
            start, hops = re.search(r"from (\w) hops (\d+)", str(lesson.prompt)).groups()
            seen.add((task.arrows, start, int(hops)))
    assert {split_of(asked) for asked in seen} == {"train"}


def test_replies_that_are_too_short_for_the_longest_path_are_refused():
    assert Relay(hops=(4,), max_tokens=6)
    with pytest.raises(ValueError, match="a path of 5 words and its end need 6 or more"):
        Relay(hops=(4,), max_tokens=5)
    with pytest.raises(ValueError, match="a path of 6 words and its end need 7 or more"):
        Relay(hops=(4,), max_tokens=6, brief=False)


def experts(world: Relay, task: Journey):
    """An episode of demonstrations that make no mistake."""
    cursor, rng = Cursor(world, task, 0), Random(0)

    async def play():
        while (point := await cursor.advance()) is not None:
            cursor.answer(
                {
                    role: Reply(role, world.demonstrate(role, task, point.asked.prompts[role], rng))
                    for role in point.roles
                }
            )
        return cursor.log

    return run(play())


def test_two_who_say_what_they_know_always_arrive():
    world = Relay(naive=0.0)
    for index in range(300):
        task = world.task("test", index)
        assert experts(world, task).outcome.solved, task


@pytest.mark.parametrize("share", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_one_role_alone_knows_enough_for_the_share_that_is_counted(share, hops):
    world = Relay(shares=(share,), hops=(hops,), solo=True)
    tasks = [world.task("train", index) for index in range(600)]
    knows = [set(task.path[:-1]) <= set(task.known[0]) for task in tasks]
    chance = knows_enough(8, share, hops)
    assert abs(sum(knows) / 600 - chance) < 4 * (0.25 / 600) ** 0.5
    assert chance == {8: 1.0}.get(share, chance)
    solved = [bool(experts(world.model_copy(update={"naive": 0.0, "max_turns": 1}), task).outcome.solved)
              for task in tasks[:50]]  # fmt: skip
    assert all(solved[at] for at in range(50) if knows[at])


# 4 arrows of 8: for two hops 4/8 x 3/7; for five hops none
def test_what_one_role_knows_by_hand():
    assert knows_enough(8, 4, 1) == 0.5
    assert knows_enough(8, 4, 2) == pytest.approx(4 / 8 * 3 / 7)
    assert knows_enough(8, 4, 5) == 0.0


def test_a_role_corrects_what_it_knows_to_be_wrong():
    assert agreed(SQUARE, "acd", "ac") == "ac"
    assert agreed(SQUARE, "acd", "bd") == "acd", "it does not know where c leads"
    assert agreed(SQUARE, "adb", "ac") == "a"


def played(texts, world=WORLD, task=SQUARE):
    cursor, said = Cursor(world, task, 0), iter(texts)

    async def play():
        while (point := await cursor.advance()) is not None:
            cursor.answer({role: Reply(role, next(said)) for role in point.roles})
        return cursor.log

    return run(play())


def test_an_episode_by_hand():
    """first: a c (1/3). second goes on: a c b d (2/3). The team gets 1 once."""
    log = played(["a c", "a c b d"])
    assert log.outcome.solved
    assert log.rewards() == pytest.approx({"first": 1 / 3, "second": 2 / 3, "team": 1.0})


def test_a_whole_path_that_is_wrong_ends_the_episode():
    """a d is a wrong hop: -1/3; second leaves it and goes on to a whole path, which is worth no less."""
    log = played(["a d", "a d b c"])
    assert (log.outcome.solved, log.outcome.reason) == (False, "a wrong path")
    assert log.rewards() == pytest.approx({"first": -1 / 3, "second": 0.0, "team": 0.0})


def test_who_says_no_path_pays_for_it_and_changes_nothing():
    log = played(["a c", "nonsense", "", "a c b d"])
    assert log.outcome.solved
    assert log.rewards() == pytest.approx({"first": 1 / 3 - 0.2, "second": 2 / 3 - 0.2, "team": 1.0})


def test_the_last_turn_is_told_and_a_guess_there_is_free():
    prompts = [WORLD.told(SQUARE, "second", "ac", last=last) for last in (False, True)]
    assert prompts == [f"b d ; d a\nfrom a hops 3{last}\nso far a c" for last in ("", " last")]
    log = played(["a", "a", "a", "a", "a", "a d c b"])
    assert log.rewards() == pytest.approx({"first": 0.0, "second": 0.0, "team": 0.0})


def test_a_demonstration_guesses_what_it_does_not_know_in_the_last_turn_alone():
    """second does not know where c leads; the next of the alphabet is d, and then a again."""
    world = WORLD.model_copy(update={"naive": 0.0})
    for last, wanted in ((False, "a c"), (True, "a c d a")):
        assert world.demonstrate("second", SQUARE, world.told(SQUARE, "second", "ac", last=last), Random(0)) == wanted


def test_some_lessons_are_of_the_last_turn():
    world, rng = Relay(), Random(0)
    lessons = [str(lesson.prompt) for index in range(100) for lesson in world.lessons(world.task("train", index), rng)]
    assert 0.2 < sum(" last" in lesson for lesson in lessons) / len(lessons) < 0.4


@pytest.mark.parametrize("settings", [{"shares": (3,)}, {"shares": (9,)}, {"hops": (8,)}, {"hops": ()}, {"shares": ()}])
def test_shares_and_paths_that_cannot_be_are_refused(settings):
    with pytest.raises(ValidationError):
        Relay(**settings)


@pytest.mark.parametrize("settings", [{}, {"solo": True, "shares": (8,), "max_turns": 1}, {"brief": False}])
def test_it_conforms(settings):
    report = check(Relay(**settings), tasks=5)
    assert report.ok, str(report)


@pytest.mark.long
def test_a_team_learns_to_say_what_it_knows_and_no_more(tmp_path):
    """From a third to nearly all, which no role alone can reach; and what one alone knows is the most it reaches."""
    sets = ["train.max_sampled_tokens=40000", "train.eval_tasks=100", "train.mute_every=0", "eval.tasks=400"]
    team = headline(train(load_config("relay", sets), tmp_path / "team"))
    assert team.start.success < 0.5
    assert team.end.success > 0.9
    for share, hops in ((4, 3), (5, 4)):
        alone = ["environment.solo=true", "environment.max_turns=1", f"environment.shares=[{share}]",
                 f"environment.hops=[{hops}]"]  # fmt: skip
        run = headline(train(load_config("relay", [*sets, *alone]), tmp_path / f"alone{share}"))
        assert run.end.success < knows_enough(8, share, hops) + 0.2
