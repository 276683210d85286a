"""taboo: what a hint may not say, what a guess is, and words that are held out."""

from random import Random

import pytest

from coterie.checks.conformance import check
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS
from coterie.kernel.scene import Reply
from coterie_worlds.taboo import EXAMPLES, FILLERS, KINDS, Card, Taboo, guessed, says, words
from tests.toys import run

CARD = Card("t", "train", query="cat", answer="cat", kind="animal", facts="It purrs. It hunts mice.")


def played(hint: Reply, guess: Reply | None, task: Card = CARD, **settings) -> Cursor:
    """An episode with these replies; None: nobody may be asked for a guess."""
    cursor = Cursor(Taboo(**settings), task, 0)
    assert list(run(cursor.advance()).asked.prompts) == ["hinter"]
    cursor.answer({"hinter": hint})
    point = run(cursor.advance())
    assert (point is None) == (guess is None)
    if guess is not None:
        cursor.answer({"guesser": guess})
        assert run(cursor.advance()) is None
    return cursor


@pytest.mark.parametrize(
    ("hint", "word"),
    [
        ("A cat purrs.", "cat"),
        ("CATS purr", "cat"),
        ("the cat's home", "cat"),
        ("it is cat-like", "cat"),
        ("c a t", "cat"),
        ("C. A. T.", "cat"),
        ("it begins with C, then A, then T", "cat"),
        ("an el e phant", "elephant"),
        ("foot-ball", "football"),
        ("read tac from its end", "cat"),
        ("a c\u200bat", "cat"),
        ("a cát", "cat"),
        ("two cherries", "cherry"),
        ("he is baking, he bakes", "bake"),
        ("we are swimming", "swim"),
        ("Many wolves.", "wolf"),
        ("Mice.", "mouse"),
        ("Xpotato", "potato"),
        ("Gingerbread", "bread"),
        ("It is sunny.", "sun"),
        ("Icy", "ice"),
        ("His teeth", "tooth"),
        ("catcat", "cat"),
        ("a c4t", "cat"),
        ("it is a b@11", "ball"),
        ("T A C", "cat"),
        ("\u0441\u0430t", "cat"),  # Cyrillic
        ("p\u03bftat\u03bf", "potato"),  # Greek
        ("two c\u00adats", "cat"),  # signs that are not seen
    ],
)
def test_a_hint_that_says_the_word_is_refused(hint, word):
    assert says(hint, word)


@pytest.mark.parametrize(
    ("hint", "word"),
    [
        ("It purrs and hunts mice.", "cat"),
        ("cattle are caught", "cat"),
        ("take part in the art", "heart"),
        ("a start", "star"),
        ("It was made to cut wood.", "saw"),
        ("It is land with water all around.", "island"),
        ("", "cat"),
        ("猫", "cat"),
    ],
)
def test_a_hint_that_only_resembles_the_word_is_allowed(hint, word):
    assert not says(hint, word)


@pytest.mark.parametrize(
    ("text", "finish", "word"),
    [
        ("cat", "stop", "cat"),
        (" A cat.\n", "stop", "cat"),
        ("The Cats!", "stop", "cats"),
        ("cat", "length", ""),
        ("cat dog", "stop", ""),
        ("cat, dog", "stop", ""),
        ("cat cat", "stop", ""),
        ("It is a cat.", "stop", ""),
        ("a", "stop", ""),
        ("", "stop", ""),
        ("猫", "stop", ""),
    ],
)
def test_a_guess_is_one_word_that_was_not_cut(text, finish, word):
    assert guessed(Reply("guesser", text, finish)) == word


def test_a_right_guess_earns_one_for_the_team_and_costs_nobody_anything():
    log = played(Reply("hinter", "It purrs."), Reply("guesser", "A cat.")).log
    assert log.solved
    assert log.rewards() == {"team": 1.0}
    plural = played(Reply("hinter", "It purrs."), Reply("guesser", "cats")).log
    assert plural.solved


def test_a_hint_that_says_the_word_ends_the_episode_and_earns_nothing():
    log = played(Reply("hinter", "A cat purrs."), None).log
    assert not log.solved
    assert log.rewards() == {"team": 0.0, "hinter": -0.25}


def test_a_cut_hint_is_passed_on_but_earns_less_than_one_that_ends():
    log = played(Reply("hinter", "It purrs and it", "length"), Reply("guesser", "cat")).log
    assert log.rewards() == {"team": 1.0, "hinter": -0.25}


@pytest.mark.parametrize(
    ("guess", "rewards"),
    [
        (Reply("guesser", "dog"), {"team": 0.0}),
        (Reply("guesser", "cat dog cow pig"), {"team": 0.0, "guesser": -0.25}),
        (Reply("guesser", "cat", "length"), {"team": 0.0, "guesser": -0.25}),
    ],
)
def test_a_list_of_words_or_a_cut_guess_earns_nothing(guess, rewards):
    log = played(Reply("hinter", "It purrs."), guess).log
    assert not log.solved
    assert log.rewards() == rewards


def test_the_guesser_sees_the_hint_and_the_kind_and_never_the_word_or_the_facts():
    cursor = Cursor(Taboo(examples=0), CARD, 0)
    hinter = str(run(cursor.advance()).asked.prompts["hinter"])
    assert "cat: It purrs. It hunts mice." in hinter
    cursor.answer({"hinter": Reply("hinter", "It likes\nboxes.")})
    guesser = str(run(cursor.advance()).asked.prompts["guesser"])
    assert "Guess the animal: It likes boxes." in guesser
    assert "cat" not in guesser
    assert "purrs" not in guesser


def test_choices_hold_the_word_once_among_others_of_its_split():
    for split in SPLITS:
        there = {entry.word for entry in words(split)}
        for index in range(20):
            task = Taboo(choices=8).task(split, index)
            assert len(set(task.choices)) == 8
            assert task.answer in task.choices
            assert set(task.choices) <= there
    places = [Taboo(choices=4).task("train", index) for index in range(400)]
    first = sum(task.choices[0] == task.answer for task in places)
    assert 70 < first < 130  # a quarter of 400, within 3.5 standard deviations of 8.7


def test_words_of_splits_are_disjoint_and_no_example_is_one():
    parts = [{entry.word for entry in words(split)} for split in SPLITS]
    assert [len(part) for part in parts] == [232, 60, 80]
    assert len(set().union(*parts)) == 372
    assert not set().union(*parts) & {*FILLERS, *(entry.word for entry, _ in EXAMPLES)}


def test_facts_never_say_their_word_and_every_kind_can_be_named():
    for split in SPLITS:
        for entry in words(split):
            assert not says(entry.facts, entry.word), entry
            assert entry.word.isascii()
            assert entry.word.islower()
            assert entry.kind in KINDS


def test_held_out_tasks_do_not_repeat_and_training_sees_all_words_before_any_again():
    world = Taboo()
    for split in SPLITS:
        count = world.count(split)
        assert len({world.task(split, index).answer for index in range(count)}) == count
    once = [world.task("train", index).answer for index in range(232)]
    again = [world.task("train", 232 + index).answer for index in range(232)]
    assert set(once) == set(again)
    assert once != again


def test_demonstrations_solve_every_word():
    world = Taboo()
    for split in SPLITS:
        for index in range(world.count(split)):
            task = world.task(split, index)
            replies = [Reply(role, world.demonstrate(role, task, "", Random(0))) for role in world.roles]
            assert played(*replies, task=task).log.solved, task


@pytest.mark.parametrize("settings", [{}, {"choices": 8}, {"kinds": False, "examples": 0}])
def test_it_keeps_the_contract(settings):
    report = check(Taboo(**settings))
    assert report.ok, report


def test_one_choice_is_refused_in_a_line():
    with pytest.raises(ValueError, match="choices = 1 is no choice"):
        Taboo(choices=1)
