"""What holds of every world that is shipped; `gateway:AGENT` is none, its tasks are what a person brings."""

from itertools import cycle, islice
from random import Random

import pytest

from coterie.checks.conformance import check
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Environment
from coterie.kernel.episode import ChatMessage, text_of
from coterie.kernel.loops import drive
from coterie.kernel.scene import Reply, role_of
from coterie.registry import find, shipped

TASKS = 100
WORLDS = sorted(name for name in shipped("environment") if not find("environment", name, Environment).argument)
"""Environments that ask in plain language only, and are made for models that were never taught them."""
APART = {
    "desks": "what is right is drawn at random, and only notes tell it",
    "code_pair": "each shares out the work in one of several ways, and knows nothing of the other's",
}
"""Environments whose demonstrations do not solve every task, and why."""


def made(name: str, **settings) -> Environment:
    """An environment whose programs, where it runs any, run here."""
    kind = find("environment", name, Environment)
    here = {"sandbox": "process"} if "sandbox" in kind.model_fields else {}
    return kind.model_validate(here | settings)


def careful(name: str) -> Environment:
    """Whose demonstrations have no bad habits."""
    return made(name, **({"naive": 0.0} if "naive" in find("environment", name, Environment).model_fields else {}))


def played(world: Environment, index: int, twist=lambda reply: reply) -> Cursor:
    """A test task, played by demonstrations."""
    task, rng = world.task("test", index), Random(index)
    cursor = Cursor(world, task, index)

    async def go():
        while (point := await cursor.advance()) is not None:
            replies = {}
            for speaker, prompt in point.asked.prompts.items():
                role = role_of(speaker)
                replies[speaker] = Reply(role, twist(world.demonstrate(role, task, text_of(prompt), rng)))
            cursor.answer(replies)

    drive(go())
    return cursor


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WORLDS if name not in APART])
def test_demonstrations_solve_nearly_every_task(name):
    world = careful(name)
    assert sum(played(world, index).log.solved for index in range(TASKS)) >= 0.95 * TASKS


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_ten_thousand_words_of_a_right_answer_are_never_better_than_the_answer(name):
    world = careful(name)

    def many(reply: str) -> str:
        return " ".join(islice(cycle(reply.split() or ["x"]), 10_000))

    for index in range(5):
        log, honest = played(world, index, many).log, played(world, index).log
        assert log.rewards().get("team", 0.0) <= honest.rewards()["team"]
        assert not log.solved


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in WORLDS if "brief" in find("environment", name, Environment).model_fields]
)
def test_a_model_that_was_never_taught_is_told_in_a_system_message(name):
    world = made(name, brief=False)
    assert world.recommended() == {}
    point = drive(Cursor(world, world.task("train", 0), 0).advance())
    for speaker, prompt in point.asked.prompts.items():
        chat = [message for message in prompt if isinstance(message, ChatMessage)]
        assert [message.role for message in chat if message.role == "system"] == ["system"], speaker
        assert chat[0].role == "system"
        assert len(str(chat[0].content)) > 80
        assert chat[-1].role == "user"
    report = check(world, tasks=1)
    assert report.ok, report
