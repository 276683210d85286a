"""Documents: two roles see different pages about real countries, and a question needs a fact of each page.

The geographer's page has capitals, highest points and years of independence, the statistician's page has numbers. A
question is "Nairobi is the capital of a country. What is its median age?". The geographer is asked which country
that is. The statistician sees the question and the geographer's words, and says the number. With `solo` it answers
alone.

The facts are those of the World Factbook (ORIGIN.md). A country belongs to one split, with all its facts and also as
one of the others on a page.

Rewards: the geographer gets 1 if it names the right country and no other. The team gets 1 if the statistician then says
the right number and no other; after a wrong country a right number is luck, which solves the task and is not paid. Half
of a reward is paid if a reply was cut at its token limit (`answers.py`). With `dense = false` the team gets 1 for the
right number, whatever was said before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.environments.answers import chat, heard, numbers_in, whole_words, worth
from coterie.kernel.environment import Environment, Split, Task, split_of
from coterie.kernel.scene import Message, Prompt, Reply, Scene
from coterie.seeds import seed_of

GEOGRAPHER, STATISTICIAN = "geographer", "statistician"
CLUES = ("capital", "highest point", "year of independence")
"""Kinds of facts on the geographer's page."""
NUMBERS = (
    "median age", "life expectancy", "number of airports", "percentage of forest", "urban percentage",
    "percentage of Internet users",
)  # fmt: skip
"""Kinds of facts on the statistician's page."""
COUNTRIES: Mapping[str, Mapping[str, str | int]] = json.loads(
    Path(__file__).with_name("countries.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True)
class CountryQuestion(Task):
    """A question for a number of a country, which is told by a clue.

    Attributes:
        country: the country that is meant.
        clue: the kind of fact by which the question tells it.
        number: the kind of fact that is asked for.
        clues: the geographer's page; of each country, its name and facts by kind.
        numbers: the statistician's page.
    """

    country: str = ""
    clue: str = ""
    number: str = ""
    clues: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    numbers: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()

    @property
    def right(self) -> int:
        """The right number."""
        return int(dict(dict(self.numbers)[self.country])[self.number])

    @property
    def fact(self) -> str:
        """The fact by which the question tells the country, such as `Nairobi`."""
        return dict(dict(self.clues)[self.country])[self.clue]

    @property
    def told(self) -> str:
        """The fact as the question says it, such as `Nairobi is the capital`."""
        return f"{self.fact} is the {self.clue}"


class Documents(Environment):
    """A geographer says which country a question means, and a statistician says the number."""

    team_reward_range: ClassVar = (0.0, 1.0)

    countries: int = Field(default=4, ge=2, le=8)
    """Number of countries on a page. Both pages have the same ones, in different orders."""
    facts: int = Field(default=1, ge=1, le=3)
    """Number of facts about each country on a page."""
    view: Literal["split", "full"] = "split"
    """split: the statistician sees its own page only. full: it also sees the geographer's page."""
    solo: bool = False
    """The statistician answers alone. With `view = "split"` it can only guess, or know the country by itself."""
    dense: bool = True
    """true: the geographer gets a reward of its own. false: the team's reward is the only one."""
    example: bool = False
    """true: an answered example about other countries stands before each question."""
    max_tokens: int = Field(default=16, ge=4)
    """Maximum tokens per reply."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The geographer and the statistician, or the statistician alone."""
        return (STATISTICIAN,) if self.solo else (GEOGRAPHER, STATISTICIAN)

    def inert(self) -> dict[str, str]:
        """Returns `dense` as without effect if there is no geographer: then nobody has a reward of its own."""
        return {"dense": "solo = true has no geographer"} if self.solo else {}

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings that pay each role for its own reply; the statistician hears the geographer's best reply."""
        return {"algorithm": {"name": "at_grpo", "horizon": "point"}} if self.dense and not self.solo else {}

    def task(self, split: Split, index: int) -> CountryQuestion:
        """Returns a question about countries of the split: each of its questions once, then again with other pages."""
        questions = questions_of(split)
        country, clue, number = questions[index % len(questions)]
        rng = Random(seed_of("documents", self.countries, self.facts, split, index))
        page = others(country, clue, number, self.countries - 1, split, rng)
        clues = [clue, *rng.sample([kind for kind in CLUES if kind != clue], self.facts - 1)]
        numbers = [number, *rng.sample([kind for kind in NUMBERS if kind != number], self.facts - 1)]
        return CountryQuestion(
            f"{split}-{index}",
            split,
            kind=clue,
            country=country,
            clue=clue,
            number=number,
            clues=facts_of(page, [kind for kind in CLUES if kind in clues], rng),
            numbers=facts_of(page, [kind for kind in NUMBERS if kind in numbers], rng),
        )

    async def play(self, task: CountryQuestion, scene: Scene) -> None:
        """Plays one question: the geographer's message, then the statistician's answer."""
        replies: list[Reply] = []
        earned = True
        if not self.solo:
            message = await scene.ask(GEOGRAPHER, self.geographer_prompt(task), max_tokens=self.max_tokens)
            named = countries_in(message, task.fact) == {task.country}
            scene.metric("geographer_right", float(named))
            if self.dense:
                scene.reward(GEOGRAPHER, worth(named, message))
                earned = named
            replies.append(message)
        seen = self.statistician_prompt(task, "".join(map(heard, replies)))
        answer = await scene.ask(STATISTICIAN, seen, max_tokens=self.max_tokens)
        numbers = numbers_in(answer)
        right = numbers == {task.right}
        scene.metric("readable", float(len(numbers) == 1))
        scene.team_reward(worth(right and earned, *replies, answer))
        if right and answer.finish == "stop":
            return scene.succeed()
        return scene.fail("cut" if right else "another number" if len(numbers) == 1 else "no single number")

    def geographer_prompt(self, task: CountryQuestion) -> list[Message]:
        """Returns the geographer's prompt: its page and the question."""
        shown = [(geographer_sees(EXAMPLE), EXAMPLE.country)] if self.example else []
        return chat("Answer with one name.", shown, geographer_sees(task))

    def statistician_prompt(self, task: CountryQuestion, message: str) -> list[Message]:
        """Returns the statistician's prompt: its page, the geographer's message if there is one, and the question."""
        shown = [(self.statistician_sees(EXAMPLE, EXAMPLE.country), str(EXAMPLE.right))] if self.example else []
        return chat("Answer with one number.", shown, self.statistician_sees(task, message))

    def statistician_sees(self, task: CountryQuestion, message: str) -> str:
        """Returns the statistician's page and question."""
        pages = [clues_page(task)] if self.view == "full" else []
        words = "" if self.solo else f" The geographer says which: {message}"
        question = f"{task.told} of a country.{words}\nWhat is the {task.number} of that country?"
        return "\n".join([*pages, numbers_page(task), question])

    def demonstrate(self, role: str, task: CountryQuestion, prompt: Prompt, rng: Random) -> str:
        """Returns the country, or the number; the statistician alone guesses, if it sees no clues."""
        if role == GEOGRAPHER:
            return task.country
        guessed = rng.choice(task.numbers)[0] if self.solo and self.view == "split" else task.country
        return dict(dict(task.numbers)[guessed])[task.number]


@cache
def questions_of(split: Split) -> tuple[tuple[str, str, str], ...]:
    """Returns all questions of a split in a fixed order, each as a country, a clue and a number."""
    questions = [
        (country, clue, number)
        for country, facts in COUNTRIES.items()
        if split_of(country) == split
        for clue in CLUES
        for number in NUMBERS
        if clue in facts and number in facts
    ]
    Random(seed_of("questions", split)).shuffle(questions)
    return tuple(questions)


def others(country: str, clue: str, number: str, count: int, split: Split, rng: Random) -> list[str]:
    """Returns a country and `count` others of its split, in any order, that differ in the clue and in the number."""
    page = [country]
    for other in rng.sample([*COUNTRIES], len(COUNTRIES)):
        facts = COUNTRIES[other]
        known = split_of(other) == split and clue in facts and number in facts
        if known and all(facts[kind] != COUNTRIES[shown][kind] for kind in (clue, number) for shown in page):
            page.append(other)
        if len(page) > count:
            break
    return page


def facts_of(
    countries: Sequence[str], kinds: Sequence[str], rng: Random
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Returns a page: the countries in any order, each with the facts that it has of these kinds."""
    return tuple(
        (country, tuple((kind, str(COUNTRIES[country][kind])) for kind in kinds if kind in COUNTRIES[country]))
        for country in rng.sample(countries, len(countries))
    )


def clues_page(task: CountryQuestion) -> str:
    """Returns the geographer's page, a line for each country and a sentence for each fact."""
    return "\n".join(
        " ".join(f"{fact} is the {kind} of {country}." for kind, fact in facts) for country, facts in task.clues
    )


def numbers_page(task: CountryQuestion) -> str:
    """Returns the statistician's page."""
    return "\n".join(
        " ".join(f"The {kind} of {country} is {fact}." for kind, fact in facts) for country, facts in task.numbers
    )


def geographer_sees(task: CountryQuestion) -> str:
    """Returns the geographer's page and question."""
    return f"{clues_page(task)}\n{task.told} of which country?"


def countries_in(reply: Reply, fact: str) -> set[str]:
    """Returns the countries that a reply names: not Sudan in South Sudan, nor Spain in the fact Port of Spain."""
    return {NAMES[name.lower()] for name in NAMED.findall(whole_words(reply).replace(fact, ""))}


NAMES = {name.lower(): name for name in COUNTRIES}
NAMED = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, COUNTRIES), key=len, reverse=True))})(?![\w-])", re.IGNORECASE
)
EXAMPLE = CountryQuestion(
    "example",
    "train",
    country="Ruritania",
    clue="capital",
    number="median age",
    clues=(
        ("Lilliput", (("capital", "Mildendo"),)),
        ("Ruritania", (("capital", "Strelsau"),)),
        ("Utopia", (("capital", "Amaurote"),)),
    ),
    numbers=(
        ("Ruritania", (("median age", "31"),)),
        ("Utopia", (("median age", "43"),)),
        ("Lilliput", (("median age", "26"),)),
    ),
)
"""A question that is answered in prompts, to show the form of an answer."""
