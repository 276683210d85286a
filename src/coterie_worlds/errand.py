"""Errand: a clerk knows who wants what, a cashier knows what things cost, and together they say what a person pays.

The clerk sees the wishes of some people and says what one of them wants. The cashier sees the prices and the clerk's
words, and says what that person has to pay. Everything is asked in plain language, so a small general model can begin
without a starter. With `solo` one agent, the cashier, answers alone.

Rewards: the clerk gets 1 if it names the one thing that the person wants and no other. The team gets 1 if the cashier
then says the one right price and no other number; after a wrong thing the right price is luck, which solves the task
and is not paid. Half of a reward is paid if a reply was cut at its token limit (`answers.py`). With `dense = false` the
team gets 1 for the right price, whatever was said before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.environments.answers import chat, heard, numbers_in, whole_words, worth
from coterie.kernel.environment import Environment, Split, Task, split_of
from coterie.kernel.scene import Message, Prompt, Reply, Scene
from coterie.seeds import seed_of

CLERK, CASHIER = "clerk", "cashier"
NAMES = (
    "Ana", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Ivan", "Julia",
    "Kevin", "Laura", "Mike", "Nina", "Oscar", "Paula", "Robert", "Sara", "Tom", "Victor",
)  # fmt: skip
THINGS = (
    "tea", "milk", "juice", "coffee", "bread", "cheese", "rice", "soup", "cake", "honey",
    "fish", "corn", "apples", "grapes", "lemons", "pears", "butter", "eggs", "sugar", "salt",
)  # fmt: skip
PRICES = range(2, 100)
"""Prices in dollars. All prices of a task differ."""


@dataclass(frozen=True, slots=True)
class Order(Task):
    """A question about one person. wishes: names and things. prices: things and dollars. name: who is asked about."""

    wishes: tuple[tuple[str, str], ...] = ()
    prices: tuple[tuple[str, int], ...] = ()
    name: str = ""

    @property
    def thing(self) -> str:
        """The thing that the person wants."""
        return dict(self.wishes)[self.name]

    @property
    def price(self) -> int:
        """The price of that thing, in dollars."""
        return dict(self.prices)[self.thing]


EXAMPLES = (
    Order(
        "example",
        "train",
        wishes=(("Rosa", "pasta"), ("Leo", "wine"), ("Nora", "beans")),
        prices=(("beans", 34), ("wine", 7), ("pasta", 52)),
        name="Leo",
    ),
    Order(
        "example",
        "train",
        wishes=(("Max", "nuts"), ("Lucy", "water"), ("Peter", "oil")),
        prices=(("nuts", 61), ("oil", 5), ("water", 28)),
        name="Max",
    ),
)
"""Orders that are answered in prompts, to show the form of an answer. No task has these names or things."""


class Errand(Environment):
    """A clerk says what a person wants, and a cashier, who knows the prices, says what that costs."""

    team_reward_range: ClassVar = (0.0, 1.0)

    people: int = Field(default=4, ge=2, le=len(NAMES))
    """Number of people. Each wants another thing."""
    view: Literal["split", "full"] = "split"
    """split: the cashier sees the prices only. full: it also sees who wants what."""
    solo: bool = False
    """The cashier answers alone. With `view = "split"` it can only guess among the prices."""
    dense: bool = True
    """true: the clerk gets a reward of its own. false: the team's reward is the only one."""
    examples: int = Field(default=0, ge=0, le=2)
    """Number of answered examples, of other people and things, that stand before a question."""
    max_tokens: int = Field(default=12, ge=4)
    """Maximum tokens per reply."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The clerk and the cashier, or the cashier alone."""
        return (CASHIER,) if self.solo else (CLERK, CASHIER)

    def inert(self) -> dict[str, str]:
        """Returns `dense` as without effect if there is no clerk: then nobody has a reward of its own."""
        return {"dense": "solo = true has no clerk"} if self.solo else {}

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings that pay each role for its own reply; the cashier hears the best of the clerk's replies."""
        return {"algorithm": {"name": "at_grpo", "horizon": "point"}} if self.dense and not self.solo else {}

    def task(self, split: Split, index: int) -> Order:
        """Returns wishes, prices and a question; the wishes and the person belong to the split."""
        rng = Random(seed_of("errand", self.people, split, index))
        while True:
            names, things = rng.sample(NAMES, self.people), rng.sample(THINGS, self.people)
            name, wishes = rng.choice(names), tuple(zip(names, things, strict=True))
            if split_of((name, sorted(wishes))) == split:
                break
        costs = zip(rng.sample(things, self.people), rng.sample(PRICES, self.people), strict=True)
        return Order(f"{split}-{index}", split, wishes=wishes, prices=tuple(costs), name=name)

    async def play(self, task: Order, scene: Scene) -> None:
        """Plays one order: a question to each role."""
        replies: list[Reply] = []
        earned = True
        if not self.solo:
            wish = await scene.ask(CLERK, self.clerk_prompt(task), max_tokens=self.max_tokens)
            named = things_in(wish) == things_in(replace(wish, text=heard(wish))) == {task.thing}
            scene.metric("clerk_right", float(named))
            if self.dense:
                scene.reward(CLERK, worth(named, wish))
                earned = named
            replies.append(wish)
        seen = self.cashier_prompt(task, "".join(map(heard, replies)))
        bill = await scene.ask(CASHIER, seen, max_tokens=self.max_tokens)
        numbers = numbers_in(bill)
        right = numbers == {task.price}
        scene.metric("readable", float(len(numbers) == 1))
        scene.team_reward(worth(right and earned, *replies, bill))
        if right and bill.finish == "stop":
            return scene.succeed()
        return scene.fail("cut" if right else "another price" if len(numbers) == 1 else "no single price")

    def clerk_prompt(self, task: Order) -> list[Message]:
        """Returns the clerk's prompt: who wants what, and the question."""
        shown = [(clerk_sees(example), example.thing.capitalize()) for example in EXAMPLES[: self.examples]]
        return chat("Answer with one word.", shown, clerk_sees(task))

    def cashier_prompt(self, task: Order, said: str) -> list[Message]:
        """Returns the cashier's prompt: what it knows, the clerk's words if there is a clerk, and the question."""
        shown = [
            (self.cashier_sees(example, example.thing.capitalize()), str(example.price))
            for example in EXAMPLES[: self.examples]
        ]
        return chat("Answer with one number.", shown, self.cashier_sees(task, said))

    def cashier_sees(self, task: Order, said: str) -> str:
        """Returns the cashier's question about an order."""
        wishes = [wishes_of(task)] if self.view == "full" else []
        costs = " ".join(f"{thing.capitalize()}: {price} dollars." for thing, price in task.prices)
        what = f"what {task.name} wants?" if self.solo else f"this: {said}"
        return "\n".join([*wishes, costs, f"What is the price of {what}"])

    def demonstrate(self, role: str, task: Order, prompt: Prompt, rng: Random) -> str:
        """Returns the thing or the price; the cashier alone guesses a price, if it does not see who wants what."""
        if role == CLERK:
            return task.thing
        guesses = self.solo and self.view == "split"
        return str(rng.choice(task.prices)[1] if guesses else task.price)


def wishes_of(task: Order) -> str:
    """Returns the wishes as sentences."""
    return " ".join(f"{name} wants {thing}." for name, thing in task.wishes)


def clerk_sees(task: Order) -> str:
    """Returns the clerk's question about an order."""
    return f"{wishes_of(task)}\nWhat does {task.name} want?"


def things_in(reply: Reply) -> set[str]:
    """Returns the things that a reply names."""
    words = set(re.findall(r"[a-z]+", whole_words(reply).lower()))
    return {thing for thing in THINGS if {thing, f"{thing}s", thing.removesuffix("s")} & words}
