"""Desks: find the right desk and form for each topic in an office. Only experience tells, and the office changes.

A question is about a topic. At the same time, the `router` names a desk and the `clerk` names a form. The question is
answered if both are right. The desk and the form of each topic are random, are never shown, and are redrawn after every
`era` questions. Weights that were trained on many offices cannot know this one, so only memory can learn it. A note
says what a role did, such as `for rivers take desk 3 .`, in words of the environment (see docs/memory.md).

Reward: 1 for the team where both are right.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from coterie.environments.talk import Talk
from coterie.kernel.environment import Environment, Lesson, Split, Task
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie.memory.recall import PREFACE
from coterie.seeds import seed_of

TOPICS = (
    "rivers", "taxes", "roads", "schools", "parks", "ships", "mills", "wells",
    "bridges", "markets", "trees", "maps", "trains", "lamps", "bells", "walls",
)  # fmt: skip
THINGS = {"router": "desk", "clerk": "form"}
"""Things that the roles name, by role."""


@dataclass(frozen=True, slots=True)
class DeskQuestion(Task):
    """A question. topic: what it is about. right: the number of the desk and of the form."""

    topic: str = ""
    right: tuple[int, int] = (0, 0)


class Desks(Environment):
    """A router and a clerk find out which desk and which form a topic needs."""

    roles: ClassVar = tuple(THINGS)
    team_reward_range: ClassVar = (0.0, 1.0)
    starter: ClassVar[str] = "starter-desks"

    office: int = Field(default=0, ge=0)
    """Number of the office. Each office has its own assignment of desks and forms."""
    topics: int = Field(default=8, ge=1, le=len(TOPICS))
    """Number of topics in the questions."""
    choices: int = Field(default=4, ge=2, le=9)
    """Number of desks, and also of forms."""
    era: int = Field(default=1000, ge=1)
    """Number of training questions after which the desk and the form of every topic are redrawn."""
    brief: bool = True
    """true: short prompts, for a small model that was trained on the task. false: prompts with instructions."""
    max_tokens: int = Field(default=12, ge=4)
    """Maximum tokens per reply."""

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for the starter: weights frozen, memory alone evolving; half a minute on one core."""
        if not self.brief:
            return {}
        return {
            "algorithm": {"name": "at_grpo", "num_generations": 2},
            "team": {role: role for role in self.roles},
            "policies": {role: {"kind": "frozen"} for role in self.roles},
            "memory": {"mode": "on", "worth": 0.0},
            "train": {"steps": 60, "tasks_per_step": 32, "eval_every": 60, "eval_tasks": 100, "mute_every": 0},
        }

    def task(self, split: Split, index: int) -> DeskQuestion:
        """Returns the question at an index of a split; held-out questions are of the first era."""
        rng = Random(seed_of("desks", self.office, split, index))
        topic = rng.choice(TOPICS[: self.topics])
        era = index % (1 << 32) // self.era if split == "train" else 0
        office = Random(seed_of("desks", self.office, era, topic))
        right = (office.randint(1, self.choices), office.randint(1, self.choices))
        query = f"{topic} , case {split[:2]}{index}"
        return DeskQuestion(f"{split}-{index}", split, query=query, topic=topic, right=right)

    async def play(self, task: DeskQuestion, scene: Scene) -> None:
        """Plays one question: the router names a desk and the clerk a form, at once."""
        talk = Talk(scene, {} if self.brief else {role: self.manual(role) for role in self.roles})
        replies = await talk.ask_all([(role, asked(role, task)) for role in self.roles], max_tokens=self.max_tokens)
        named = tuple(map(number, self.roles, replies, itertools.repeat(task.topic)))
        for role, choice, wanted in zip(self.roles, named, task.right, strict=True):
            scene.metric(f"right/{role}", float(choice == wanted))
            scene.metric(f"readable/{role}", float(choice > 0))
        scene.team_reward(float(named == task.right))
        return scene.succeed() if named == task.right else scene.fail("a wrong desk or form")

    def manual(self, role: str) -> str:
        """Returns the instructions of a role for a model that was never taught it."""
        thing = THINGS[role]
        return (
            f"In an office every topic has a desk and a form of its own, numbered 1 to {self.choices}. You are the "
            f"{role}: you are told a topic and name its {thing}. Nothing but what was right before tells which it is, "
            "and it may change. Answer with one line of this form, and nothing else; such as, of another topic, "
            f"`{said(role, 'x30', 0)}`"
        )

    def note(self, role: str, reply: Reply) -> str:
        """Returns a reply as a note: the topic and the number, if both are known names; else nothing."""
        match = SAID[role].fullmatch(reply.text.strip())
        if match and match[1] in TOPICS[: self.topics] and 1 <= int(match[2]) <= self.choices:
            return said(role, match[1], int(match[2]))
        return ""

    def demonstrate(self, role: str, task: DeskQuestion, prompt: Prompt, rng: Random) -> str:
        """Returns the reply that the first note on the topic gives; without such a note, a random one."""
        known = [match[0] for match in SAID[role].finditer(str(prompt)) if match[1] == task.topic]
        return known[0] if known else said(role, task.topic, rng.randint(1, self.choices))

    def lessons(self, task: DeskQuestion, rng: Random) -> Iterator[Lesson]:
        """Yields a lesson for each role, mostly with notes: on the topic or on others, of offices drawn for each."""
        for role in self.roles:
            several = rng.sample(TOPICS, rng.randint(0, 3))
            if rng.random() < 0.7:
                several = [*several[:2], task.topic]
                rng.shuffle(several)
            notes = [said(role, topic, rng.randint(1, self.choices)) for topic in dict.fromkeys(several)]
            lines = [json.dumps({"note": note}) for note in notes]
            prompt = "\n".join([*([PREFACE, *lines] if lines else []), asked(role, task)])
            yield Lesson(role, prompt, self.demonstrate(role, task, prompt, rng))


def asked(role: str, task: DeskQuestion) -> str:
    """Returns the question to a role, as its prompt."""
    return f"{role} : {task.topic} ?"


def said(role: str, topic: str, choice: int) -> str:
    """Returns a reply or a note, of one form: a small model copies the words of its prompt, blanks included."""
    return f"for {topic} take {THINGS[role]} {choice} ."


SAID = {role: re.compile(rf"for (\w{{1,20}}) take {thing} (\d) \.", re.ASCII) for role, thing in THINGS.items()}


def number(role: str, reply: Reply, topic: str) -> int:
    """Returns the number that a reply names for a topic, 0 if it names none."""
    match = SAID[role].fullmatch(reply.text.strip())
    return int(match[2]) if match and match[1] == topic and reply.finish == "stop" else 0
