"""errand: its tasks, who sees what, what replies earn, and that guessing or listing earns nothing."""

from random import Random

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.checks.conformance import check
from coterie.environments.answers import numbers_in
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.episode import text_of
from coterie.kernel.scene import Reply
from coterie_worlds.errand import EXAMPLES, NAMES, THINGS, Errand, Order, things_in
from tests.toys import run

ORDER = Order(
    "t",
    "train",
    wishes=(("Ana", "tea"), ("Ben", "milk")),
    prices=(("milk", 31), ("tea", 4)),
    name="Ben",
)


def played(world: Errand, *replies: tuple[str, str]) -> Cursor:
    """An episode in which the roles give these replies, each with the way it ended."""
    cursor = Cursor(world, ORDER, 0)
    for text, finish in replies:
        (role,) = run(cursor.advance()).roles
        cursor.answer({role: Reply(role, text, finish)})
    assert run(cursor.advance()) is None
    return cursor


@pytest.mark.parametrize(
    ("text", "finish", "things"),
    [
        ("Milk", "stop", {"milk"}),
        ("He wants a pear.", "stop", {"pears"}),
        ("He wants teas.", "stop", {"tea"}),
        ("milk, tea", "stop", {"milk", "tea"}),
        ("buttermilk", "stop", set()),
        ("", "stop", set()),
        ("Ben wants milk. T", "length", {"milk"}),
        ("Ben wants milk", "length", set()),  # milkshake, perhaps
    ],
)
def test_the_things_of_a_reply_are_its_whole_words(text, finish, things):
    assert things_in(Reply("clerk", text, finish)) == things


@pytest.mark.parametrize(
    ("text", "finish", "numbers"),
    [
        ("31", "stop", {31}),
        ("$31.", "stop", {31}),
        ("$31.00", "stop", {31}),
        ("31 or 4", "stop", {31, 4}),
        ("31 dollars. So it is 31.", "stop", {31}),
        ("-31", "stop", {-31}),
        ("0000031999", "stop", {31999}),
        ("13,513", "stop", {13513}),
        ("٣١", "stop", set()),
        ("31 dollars, and", "length", {31}),
        ("31", "length", set()),  # 310, perhaps
        ("31.9", "length", set()),
        ("-", "length", set()),
        ("31 " * 1000, "stop", set()),
    ],
)
def test_the_numbers_of_a_reply_are_its_whole_ones(text, finish, numbers):
    assert numbers_in(Reply("cashier", text, finish)) == numbers


@pytest.mark.parametrize(
    ("wish", "bill", "clerk", "team", "ending"),
    [
        (("Milk", "stop"), ("31", "stop"), 1.0, 1.0, "solved"),
        (("Milk.", "length"), ("31", "stop"), 0.5, 0.5, "solved"),
        (("Milk", "stop"), ("31 dollars", "length"), 1.0, 0.5, "cut"),
        (("Milk", "stop"), ("31", "length"), 1.0, 0.0, "no single price"),
        (("Tea", "stop"), ("4", "stop"), 0.0, 0.0, "another price"),
        (("Milk or tea", "stop"), ("31, 4", "stop"), 0.0, 0.0, "no single price"),
        (("", "stop"), ("", "length"), 0.0, 0.0, "no single price"),
        ((" " * 80 + "Milk", "stop"), ("31", "stop"), 1.0, 1.0, "solved"),
    ],
)
def test_what_an_episode_pays(wish, bill, clerk, team, ending):
    log = played(Errand(), wish, bill).log
    assert log.rewards() == {"clerk": clerk, "team": team}
    assert log.outcome.reason == ending
    assert played(Errand(dense=False), wish, bill).log.rewards() == {"team": team}


@pytest.mark.parametrize("wish", ["Tea", "x" * 80 + " Milk"])  # a thing that the cashier does not hear
def test_luck_after_a_wrong_thing_solves_the_task_and_is_not_paid(wish):
    lucky = ((wish, "stop"), ("31", "stop"))
    for world, rewards in ((Errand(), {"clerk": 0.0, "team": 0.0}), (Errand(dense=False), {"team": 1.0})):
        log = played(world, *lucky).log
        assert log.rewards() == rewards
        assert log.solved


def test_the_cashier_sees_the_prices_and_the_clerks_words_on_one_line():
    cursor = Cursor(Errand(examples=0), ORDER, 0)
    point = run(cursor.advance())
    assert text_of(point.asked.prompts["clerk"]) == (
        "[system] Answer with one word.\n[user] Ana wants tea. Ben wants milk.\nWhat does Ben want?"
    )
    cursor.answer({"clerk": Reply("clerk", "Milk\nTea: 31 dollars." + "x" * 999)})
    seen = text_of(run(cursor.advance()).asked.prompts["cashier"])
    assert seen.startswith(
        "[system] Answer with one number.\n[user] Milk: 31 dollars. Tea: 4 dollars.\n"
        "What is the price of this: Milk Tea: 31 dollars.x"
    )
    assert seen.endswith("x")
    assert len(seen) < 250


@pytest.mark.parametrize(("view", "sees"), [("split", False), ("full", True)])
@pytest.mark.parametrize("solo", [True, False])
def test_view_and_solo_are_the_controls(view, sees, solo):
    world = Errand(view=view, solo=solo)
    cursor = Cursor(world, ORDER, 0)
    if not solo:
        run(cursor.advance())
        cursor.answer({"clerk": Reply("clerk", "hm")})
    question = text_of(run(cursor.advance()).asked.prompts["cashier"]).rpartition("[user]")[2]
    assert ("Ben wants milk" in question) == sees
    assert question.endswith("What is the price of " + ("what Ben wants?" if solo else "this: hm"))
    assert world.task("test", 3) == Errand().task("test", 3)  # who sees what changes no task
    assert world.roles == (("cashier",) if solo else ("clerk", "cashier"))


@pytest.mark.parametrize("world", ["errand", "documents"])
def test_the_second_role_hears_the_best_reply_and_each_is_paid_for_its_own(world):
    from coterie import load_config

    assert load_config(world, ["policies.team.model=starter"]).algorithm == ATGRPO(horizon="point", commit="greedy")


def test_a_clerk_that_is_not_there_has_no_reward_to_set():
    from coterie import load_config

    with pytest.raises(ConfigError, match=r"solo = true has no clerk"):
        load_config("errand", ["policies.team.model=starter", "environment.solo=true", "environment.dense=false"])


def test_splits_are_apart_and_no_task_is_drawn_twice():
    for world in (Errand(), Errand(people=2)):
        seen = {split: [world.task(split, index) for index in range(1000)] for split in SPLITS}
        questions = {
            split: {(task.name, tuple(sorted(task.wishes))) for task in tasks} for split, tasks in seen.items()
        }
        assert not questions["train"] & questions["test"]
        assert not questions["validation"] & (questions["train"] | questions["test"])
        for split, tasks in seen.items():
            assert all(split_of((task.name, sorted(task.wishes))) == split for task in tasks)
            assert len({(task.name, task.wishes, task.prices) for task in tasks}) == 1000
            assert all(len({price for _, price in task.prices}) == world.people for task in tasks)


def test_examples_show_nothing_of_a_task():
    for example in EXAMPLES:
        assert not {name for name, _ in example.wishes} & {*NAMES}
        assert not {thing for _, thing in example.wishes} & {*THINGS}
        assert dict(example.prices)[example.thing] == example.price


def test_who_knows_no_wish_can_only_guess():
    world = Errand(solo=True)
    tasks = [world.task("test", index) for index in range(400)]
    right = [
        world.demonstrate("cashier", task, "", Random(index)) == str(task.price) for index, task in enumerate(tasks)
    ]
    assert 0.18 < sum(right) / 400 < 0.32
    places = [[thing for thing, _ in task.prices].index(task.thing) for task in tasks]
    assert all(70 < places.count(place) < 130 for place in range(4))  # nor does the place tell
    same = [[thing for _, thing in task.wishes] == [thing for thing, _ in task.prices] for task in tasks]
    assert 4 < sum(same) < 40  # one order in 24


@pytest.mark.parametrize("settings", [{}, {"solo": True, "view": "full"}])
def test_it_keeps_the_contract(settings):
    report = check(Errand(**settings), tasks=2)
    assert report.ok, report
