"""desks: offices that change, notes of names alone, and memory that learns what weights cannot know."""

from collections import Counter
from random import Random

import pytest

from coterie import load_config, train
from coterie.checks.conformance import check
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.scene import Reply
from coterie_worlds.desks import TOPICS, DeskQuestion, Desks, asked, number, said
from tests.toys import run

TASK = DeskQuestion("t", "train", query="rivers , case t0", topic="rivers", right=(2, 3))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("for rivers take desk 2 .", 2),
        (" for rivers take desk 2 .\n", 2),
        ("for roads take desk 2 .", 0),
        ("for rivers take form 2 .", 0),
        ("for rivers take desk 22 .", 0),
        ("for rivers take desk ٢ .", 0),
        ("", 0),
        ("2", 0),
    ],
)
def test_what_a_reply_names(text, wanted):
    assert number("router", Reply("router", text), "rivers") == wanted


def test_a_question_is_answered_where_both_are_right():
    for desk, form, solved in ((2, 3, True), (2, 1, False), (1, 3, False)):
        cursor = Cursor(Desks(), TASK, 0)
        point = run(cursor.advance())
        assert point.asked.prompts == {"router": "router : rivers ?", "clerk": "clerk : rivers ?"}
        cursor.answer(
            {
                "router": Reply("router", said("router", "rivers", desk)),
                "clerk": Reply("clerk", said("clerk", "rivers", form)),
            }
        )
        run(cursor.advance())
        assert cursor.log.solved == solved
        assert cursor.log.rewards()["team"] == float(solved)


def test_offices_differ_and_change():
    def rules(office: int, era: int) -> dict[str, tuple[int, int]]:
        tasks = (Desks(office=office, era=100).task("train", 100 * era + at) for at in range(100))
        return {task.topic: task.right for task in tasks}

    assert len(rules(0, 0)) == 8
    assert rules(0, 0) == rules(0, 0)
    assert rules(0, 0) != rules(0, 1)
    assert rules(0, 0) != rules(1, 0)
    seen = Counter(right for office in range(40) for right in rules(office, 0).values())
    assert len(seen) == 16
    assert max(seen.values()) < 3 * 320 / 16


def test_notes_are_names_and_nothing_that_was_written():
    world = Desks()
    assert world.note("router", Reply("router", "for rivers take desk 2 .")) == "for rivers take desk 2 ."
    for hostile in (
        "for rivers take desk 9 .",
        "for evil take desk 2 .",
        "for rivers take desk 2 . ignore all",
        "x" * 999,
    ):
        assert world.note("router", Reply("router", hostile)) == ""


def test_a_demonstrator_follows_the_first_note_on_the_topic():
    notes = (f'{{"note": "{said("router", topic, choice)}"}}' for topic, choice in (("roads", 1), ("rivers", 4)))
    prompt = "\n".join((*notes, asked("router", TASK)))
    assert Desks().demonstrate("router", TASK, prompt, Random(0)) == said("router", "rivers", 4)
    free = {Desks().demonstrate("router", TASK, asked("router", TASK), Random(seed)) for seed in range(50)}
    assert free == {said("router", "rivers", choice) for choice in range(1, 5)}
    lessons = [lesson for seed in range(50) for lesson in Desks().lessons(TASK, Random(seed))]
    assert {lesson.role for lesson in lessons} == {"router", "clerk"}
    assert 10 < sum("for rivers take" in lesson.prompt for lesson in lessons) < 90
    assert len(TOPICS) == 16


def test_without_memory_nothing_would_learn_and_that_is_said():
    with pytest.raises(ConfigError, match=r"nothing to train; with memory\.mode = 'on' memory alone would learn"):
        load_config("desks", ["memory.mode=off"])
    whole = load_config("desks", ["memory.mode=off", "policies.router.kind=full"])
    assert whole.team.trained == ("router",)


def test_it_keeps_the_contract():
    report = check(Desks(), decentralised=True)
    assert report.ok, report


@pytest.mark.slow
def test_frozen_weights_and_memory_alone_answer_several_times_what_chance_does(tmp_path):
    made = train(load_config("desks", ["train.steps=24", "environment.era=9999"]), tmp_path / "run")
    lines = [line["rollout/success"] for line in made.metrics() if line["step"]]
    assert sum(lines[-8:]) / 8 > 0.3  # by chance 1/16
    placebo = train(
        load_config("desks", ["train.steps=24", "environment.era=9999", "memory.mode=placebo"]), tmp_path / "p"
    )
    lines = [line["rollout/success"] for line in placebo.metrics() if line["step"]]
    assert sum(lines[-8:]) / 8 < 0.15


def test_what_is_held_out_is_of_the_first_era_and_of_all_topics():
    world = Desks(era=1, topics=16)
    first = {task.topic: task.right for task in (world.task("test", at) for at in range(200))}
    assert {(task.topic, task.right) for task in (world.task("test", at) for at in range(200, 400))} == set(
        first.items()
    )
    assert len(first) == 16
    assert len({Desks(topics=12).task("train", at).topic for at in range(300)}) == 12


def test_a_reply_that_was_cut_names_nothing_and_no_note_names_what_is_not_asked():
    assert number("router", Reply("router", "for rivers take desk 2 .", "length"), "rivers") == 0
    assert Desks(topics=8).note("router", Reply("router", f"for {TOPICS[8]} take desk 2 .")) == ""
    lessons = [lesson for seed in range(200) for lesson in Desks().lessons(TASK, Random(seed))]
    assert 0.65 < sum("for rivers take" in lesson.prompt for lesson in lessons) / len(lessons) < 0.85
