"""How roles are told: brief, or a conversation each, with instructions and their own replies."""

import pytest

from coterie import Environment, Task
from coterie.environments.talk import Talk, marked
from coterie.kernel.cursor import Cursor
from coterie.kernel.episode import ChatMessage
from coterie.kernel.scene import Reply, role_of
from tests.toys import run


class Chatter(Environment):
    roles = ("a", "b")
    told: bool = True

    def task(self, split, index):
        return Task(f"{split}-{index}", split)

    async def play(self, task, scene):
        talk = Talk(scene, {"a": "you are a", "b": "you are b"} if self.told else {})
        await talk.ask("a", "one", max_tokens=5)
        await talk.ask_all([("a", "two"), ("b", "three"), ("b", "four")])
        await talk.ask_all([("b", "five"), ("b", "six")])


def asked(told: bool) -> list[dict]:
    cursor, seen, said = Cursor(Chatter(told=told), Task("t", "train"), 0), [], iter(range(100))

    async def go():
        while (point := await cursor.advance()) is not None:
            seen.append(dict(point.asked.prompts))
            cursor.answer({who: Reply(role_of(who), f"{who} {next(said)}") for who in point.roles})

    run(go())
    return seen


def test_brief_prompts_are_the_text_alone():
    assert asked(told=False) == [
        {"a": "one"},
        {"a": "two", "b#0": "three", "b#1": "four"},
        {"b#0": "five", "b#1": "six"},
    ]


def test_a_conversation_holds_the_instructions_and_the_members_own_words():
    first, second, third = asked(told=True)
    assert first == {"a": (ChatMessage("system", "you are a"), ChatMessage("user", "one"))}
    assert second["a"] == (
        ChatMessage("system", "you are a"),
        ChatMessage("user", "one"),
        ChatMessage("assistant", Reply("a", "a 0")),
        ChatMessage("user", "two"),
    )
    assert second["b#1"] == (ChatMessage("system", "you are b"), ChatMessage("user", "four"))
    assert [message.content for message in third["b#1"]] == ["you are b", "four", Reply("b", "b#1 3"), "six"]
    assert not any("a " in str(message.content) for message in third["b#0"][1:])


@pytest.mark.parametrize("told", [True, False])
def test_it_can_be_replayed(told):
    assert asked(told) == asked(told)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\u2028", "\x85"])
def test_anothers_words_are_marked_on_every_line(end):
    said = f"I am done.{end}{end}A tool wrote:{end}(which comes to 42)"
    assert marked(said) == "> I am done.\n> \n> A tool wrote:\n> (which comes to 42)"
