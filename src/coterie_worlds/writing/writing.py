"""Writing: two roles write parts of one text, at once, and neither sees what the other writes.

The tasks are MAGRPO's (arXiv:2508.04652) and its library's: the `headline` and the `body` of a summary, or the
`opening` and the `middle` of an introduction made from an abstract. One joint reward, for the two texts together:

    facts      the embedded corpus, where what is told can be counted: see `facts.py`; in [0, 1]
    prose      of texts of a data set, ours, which cannot be farmed by stuffing: see `prose.py`; in [0, 1]
    published  levels for length, vocabulary and connectives: see `published.py`; in [0, 3], and at its maximum for
               texts that have nothing to do with their source

`protocol` says who sees what: together (as published), pipeline (the second sees the first's text), discussion (after
one round both see both and write again; only what they write then counts) or alone (one role writes both parts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coterie.environments.published.plays import PlaysData
from coterie.environments.talk import Example, Talk, marked
from coterie.kernel.environment import Lesson, Split
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie_worlds.writing import facts
from coterie_worlds.writing.facts import WritingSource
from coterie_worlds.writing.prose import Prose
from coterie_worlds.writing.published import as_published
from coterie_worlds.writing.texts import Texts, background

Protocol = Literal["together", "pipeline", "discussion", "alone"]
SOLVED_AT = 0.9
"""The share of the best reward from which on a text counts as a success."""
LONGEST = 6000
"""Maximum characters of a text that are read."""
DIVIDER = "[PARAGRAPH_SPLIT]"
"""The line between the parts of one role that writes both, as published."""
PARTS = {"summary": ("headline", "body"), "introduction": ("opening", "middle")}
WRITER = "writer"
TASKS = {
    "headline": "You write the headline of a summary of the user's text: what it comes to, in one or two sentences. "
    "Another writes the body that follows, with its details.",
    "body": "You write the body of a summary of the user's text: its details, in sentences that connectives hold "
    "together, two to three times as long as the headline before it, which another writes.",
    "opening": "From the user's abstract you write the first half of an introduction: background and motivation. "
    "Another writes the half that follows, on the method and what it means.",
    "middle": "From the user's abstract you write the second half of an introduction: the method and what it means, "
    "in sentences that connectives hold together. Another writes the half before, on background and motivation.",
}
FORM = "Answer with the text alone, in plain sentences that say what the source says, in other words."


FACTS = {
    "headline": "You write the headline of a text: the first two facts, a sentence each.",
    "body": "You write the body of a text, under a headline: all facts but the first two, a sentence each; three of "
    "them begin with different connectives.",
}
"""Instructions for a role, by part, if the source is a line of facts."""
FACT_EXAMPLES = {
    "sue : pet hen ; town bonn ; food ham ; age 55 ; hat tan ; job smith": {
        "headline": "Sue has a hen. Sue lives in bonn.",
        "body": "Also Sue likes ham. Then Sue is 55 years old. Indeed Sue wears a tan hat. Sue works as a smith.",
    },
    "kim : job monk ; age 61 ; pet bee ; hat teal ; town graz ; food jam": {
        "headline": "Kim works as a monk. Kim is 61 years old.",
        "body": "Also Kim has a bee. Then Kim wears a teal hat. Indeed Kim lives in graz. Kim likes jam.",
    },
    "ben : food tofu ; hat navy ; job vet ; town nice ; pet pig ; age 70": {
        "headline": "Ben likes tofu. Ben wears a navy hat.",
        "body": "Also Ben works as a vet. Then Ben lives in nice. Indeed Ben has a pig. Ben is 70 years old.",
    },
}
"""Examples of people and of facts that are never drawn; every kind of fact once in a headline."""


LEARNED: dict[Protocol, tuple[str, float]] = {
    "together": ("magrpo", 5e-4),
    "pipeline": ("mas_grpo", 5e-4),
    "discussion": ("mas_grpo", 5e-4),
    "alone": ("grpo", 3e-4),
}
"""The algorithm and the learning rate, by protocol.

MAGRPO answers each of eight replies with eight others where a role sees what was written: 64 texts a task, not 8."""


class Writing(PlaysData):
    """Two roles write parts of one text at once."""

    team_reward_range: ClassVar = (0.0, 3.0)
    starter: ClassVar[str] = "starter-writing"

    data: str = ""
    """Texts: a .jsonl, .json, .csv or .parquet file, hub:owner/name@revision#config/split, TRAIN -> TEST of two such
    sources, or a data set by name (tldr, arxiv). Empty: the embedded corpus."""
    form: Literal["summary", "introduction"] = "summary"
    """summary: the roles write a headline and a body. introduction: they write the two halves of an introduction."""
    measure: Literal["ours", "published"] = "ours"
    """The reward. ours: how well the text reports the facts of the embedded corpus; for other data, a score of prose.
    published: the reward of MAGRPO's library."""
    protocol: Protocol = "together"
    """together: neither role sees the other's text. pipeline: the second sees the first's text. discussion: after one
    round both see both texts and write again. alone: one role writes both parts."""
    max_tokens: int = Field(default=72, ge=4)
    """Maximum tokens per text. A text that is cut off is scored as it is."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration states arbitrary facts."""

    @property
    def parts(self) -> tuple[str, str]:
        """Names of the two parts of the text."""
        first, second = PARTS[self.form]
        return first, second

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The roles that write a part each, or the one that writes both."""
        return (WRITER,) if self.protocol == "alone" else self.parts

    @model_validator(mode="after")
    def _known(self) -> Writing:
        if not self.data and self.form != "summary":
            raise ValueError(f"form = '{self.form}' needs data: the embedded corpus is summed up")
        return self

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for the embedded corpus, which the starter knows: a policy a role, minutes on two cores."""
        if self.data or not self.brief:
            return {}
        algorithm, rate = LEARNED[self.protocol]
        return {
            "algorithm": {"name": algorithm, "num_generations": 8},
            "team": {role: role for role in self.roles},
            "policies": {role: {} for role in self.roles},
            "optimizer": {"lr": rate},
            "train": {"steps": 80, "tasks_per_step": 24, "mute_every": 0},
        }

    def reader(self) -> Texts:
        """Returns a reader of texts to write about."""
        return Texts()

    def drawn(self, split: Split, index: int) -> WritingSource:
        """Returns the source at a place of a split."""
        return facts.source(split, index)

    def ready(self) -> None:
        """Raises ConfigError if the data cannot be read."""
        if self.data:
            self._prose()

    def remarks(self) -> tuple[str, ...]:
        """Returns remarks on the data, the rows that are passed over, and what the published measure is worth."""
        farmed = (
            "environment.measure = 'published': its best pay is for texts that have nothing to do with their source"
        )
        return (*super().remarks(), *([farmed] if self.measure == "published" else []))

    async def play(self, task: WritingSource, scene: Scene) -> None:
        """Plays one text, in one round or two."""
        manuals = {} if self.brief else {role: self.manual(role) for role in self.roles}
        talk = Talk(scene, manuals, examples={role: self.examples(role) for role in manuals})
        first, second = await self._written(talk, task)
        scores = self.scores(task, first, second)
        for name, score in scores.items():
            scene.metric(name, score)
        reward = scores["reward"]
        scene.team_reward(reward)
        if reward >= SOLVED_AT * self.best:
            return scene.succeed()
        return scene.fail("not good enough")

    async def _written(self, talk: Talk, task: WritingSource) -> tuple[str, str]:
        """Returns the two parts of the text, written as the protocol says."""
        if self.protocol == "alone":
            reply = await talk.ask(WRITER, self.told(WRITER, task), max_tokens=2 * self.max_tokens)
            first, _, second = reply.text.partition(DIVIDER)
            return first[:LONGEST], second[:LONGEST]
        first, second = self.parts
        if self.protocol == "pipeline":
            one = await talk.ask(first, self.told(first, task), max_tokens=self.max_tokens)
            seen = {first: one}
            two = await talk.ask(second, self.told(second, task, seen), max_tokens=self.max_tokens)
            return one.text[:LONGEST], two.text[:LONGEST]
        seen: dict[str, Reply] = {}
        for _ in range(2 if self.protocol == "discussion" else 1):
            texts = [(role, self.told(role, task, seen)) for role in self.parts]
            replies = await talk.ask_all(texts, max_tokens=self.max_tokens)
            seen = dict(zip(self.parts, replies, strict=True))
        return seen[first].text[:LONGEST], seen[second].text[:LONGEST]

    def scores(self, task: WritingSource, first: str, second: str) -> Mapping[str, float]:
        """Returns the parts of the measure, and `reward`."""
        if self.measure == "published":
            return as_published(first, second, self.form)
        return (
            self._prose().measure(task.text, first, second, self.form)
            if self.data
            else facts.measure(task, first, second)
        )

    @property
    def best(self) -> float:
        """The most that can be earned."""
        return 3.0 if self.measure == "published" else 1.0

    def _prose(self) -> Prose:
        return background(self.data)

    def told(self, role: str, task: WritingSource, seen: Mapping[str, Reply] | None = None) -> str:
        """Returns the prompt of a role: the source, and what it may see of what was written."""
        if self.brief:
            lines = [f"{who} : {one_line(reply.text)}" for who, reply in (seen or {}).items()]
            return "\n".join((f"{role} {task.text}", *lines))
        lines = [f"The {who}, as it stands:\n{marked(reply.text[:LONGEST])}" for who, reply in (seen or {}).items()]
        return "\n\n".join((task.text, *lines))

    def manual(self, role: str) -> str:
        """Returns the instructions of a role for a model that was never taught the task."""
        tasks, form = (TASKS, f"{FORM} ") if self.data else (FACTS, "")
        if role == WRITER:
            first, second = self.parts
            return (
                f"You write a text in two parts. First: {tasks[first]} Then: {tasks[second]} {form}Put a line "
                f"{DIVIDER} between the parts."
            )
        sight = {
            "together": "You do not see what the other writes.",
            "pipeline": "The second is shown what the first wrote.",
            "discussion": "Both then see what both wrote, and write their parts again.",
        }[self.protocol]
        return f"{tasks[role]} {sight} {form}".rstrip()

    def examples(self, role: str) -> tuple[Example, ...]:
        """Returns chats that show the form of sentences that are read as facts; none for other data."""
        if self.data:
            return ()
        first, second = self.parts
        return tuple(
            (source, f"{texts[first]}\n{DIVIDER}\n{texts[second]}" if role == WRITER else texts[role])
            for source, texts in FACT_EXAMPLES.items()
        )

    def demonstrate(self, role: str, task: WritingSource, prompt: Prompt, rng: Random) -> str:
        """Returns an expert's part: first facts, or all others with connectives; with probability `naive` any facts.

        Who sees the first part as it will stand tells the facts that are not in it.
        """
        if self.data:
            raise NotImplementedError("texts of data come without demonstrations")
        first, second = self.parts
        _, _, heard = str(prompt).partition(f"\n{first} : ")
        beside = "" if f"\n{second} : " in heard else heard
        hand = facts.beginner if rng.random() < self.naive else partial(facts.expert, beside=beside)
        if role == WRITER:
            return f"{hand(task, False, rng)}\n{DIVIDER}\n{hand(task, True, rng)}"
        return hand(task, role == second, rng)

    def lessons(self, task: WritingSource, rng: Random) -> Iterator[Lesson]:
        """Yields demonstrations of every protocol, whichever is played: one starter knows them all."""
        first, second = self.parts
        hand = rng.choice((facts.beginner, facts.expert))
        draft = {role: Reply(role, hand(task, role == second, rng)) for role in self.parts}
        heard = {first: draft[first]}
        for role, seen in ((first, {}), (second, {}), (second, heard), (first, draft), (second, draft), (WRITER, {})):
            prompt = self.told(role, task, seen)
            yield Lesson(role, prompt, self.demonstrate(role, task, prompt, rng))


def one_line(text: str) -> str:
    """Returns another's text on one line, so that no part of it reads as a line of its own."""
    return re.sub(r"\s+", " ", text[:LONGEST]).strip()
