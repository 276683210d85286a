"""Short questions to general models in plain language: the chat that asks, and the reading of the answer.

A model that was never taught a task needs the form of the answer in one line and an example, and its answer is a
sentence as often as a word. So a reply is read by what it names, and an answer is the only one of its kind in it. If
a reply was cut at its token limit, its last word does not count, since more of it might have followed, and what it
says is worth half. Otherwise nothing would teach a model to end its replies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from coterie.environments.named_rewards import numbers
from coterie.kernel.scene import Message, Reply

HEARD = 80
"""Characters of another role's words that a role sees."""
CUT = re.compile(r"(?:[0-9][0-9.,]*|[\w-]+)$")
"""The end of a reply after which more of a word or number might have followed."""
LONGEST = 2000
"""Characters of a reply in which numbers are looked for; a longer one is no answer."""


def chat(instruction: str, examples: Sequence[tuple[str, str]], question: str) -> list[Message]:
    """Returns a system message, answered examples as earlier turns, and the question."""
    turns = [
        message
        for asked, answer in examples
        for message in (Message(role="user", content=asked), Message(role="assistant", content=answer))
    ]
    return [Message(role="system", content=instruction), *turns, Message(role="user", content=question)]


def heard(reply: Reply) -> str:
    """Returns another role's words as a prompt shows them: on one line, and bounded."""
    return " ".join(reply.text.split())[:HEARD]


def whole_words(reply: Reply) -> str:
    """Returns the text of a reply, without the word or number at which it was cut."""
    return reply.text if reply.finish == "stop" else CUT.sub("", reply.text)


def numbers_in(reply: Reply) -> set[Fraction | str]:
    """Returns the different numbers that a reply says, as `named_rewards.numbers` reads them; none of a long one."""
    return numbers(whole_words(reply)) if len(reply.text) <= LONGEST else set()


def worth(right: bool, *replies: Reply) -> float:
    """Returns the reward of an answer: 1 if it is right, 0.5 if one of the replies that led to it was cut, else 0."""
    return (1.0 if all(reply.finish == "stop" for reply in replies) else 0.5) * right
