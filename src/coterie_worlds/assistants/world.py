"""The generated world of `assistants`: a shop, a knowledge base, the queries and an expert's plans.

Everything is drawn once from a fixed seed: 800 things with a price, a stock and six facts each. Queries
are drawn by kind; a query's plan is the list of delegations that answer it.
"""

from __future__ import annotations

import datetime
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from coterie.environments.tools import Toolbox
from coterie.kernel.environment import Split, Task, split_of
from coterie.memory.retrieval import index
from coterie.seeds import seed_of

ADJECTIVES = (
    "red", "blue", "green", "black", "white", "old", "new", "small", "large", "round",
    "flat", "long", "short", "soft", "hard", "warm", "cold", "light", "dark", "plain",
)  # fmt: skip
NOUNS = (
    "mug", "lamp", "chair", "table", "pen", "bag", "coat", "hat", "clock", "phone",
    "book", "knife", "fork", "plate", "bowl", "kettle", "radio", "mirror", "rug", "shelf",
    "box", "bottle", "brush", "candle", "desk", "drum", "fan", "glove", "key", "ladder",
    "map", "needle", "oven", "pan", "ring", "scarf", "tent", "umbrella", "vase", "watch",
)  # fmt: skip
CITIES = (
    "Rome", "Oslo", "Cairo", "Lima", "Paris", "Delhi", "Tokyo", "Quito", "Berlin", "Madrid",
    "Vienna", "Dublin", "Athens", "Havana", "Seoul", "Tunis", "Accra", "Hanoi", "Kyiv", "Sofia",
    "Riga", "Doha", "Baku", "Bern", "Minsk", "Praia", "Suva", "Apia", "Male", "Dakar",
    "Rabat", "Sanaa", "Skopje", "Tirana", "Vilnius", "Warsaw", "Yerevan", "Zagreb", "Manila", "Lagos",
)  # fmt: skip
FACTS = ("weight", "age", "height", "width", "origin", "maker")
UNITS = {
    ("km", "m"): 1000, ("m", "cm"): 100, ("kg", "g"): 1000, ("hour", "minute"): 60, ("minute", "second"): 60,
    ("week", "day"): 7, ("dozen", "piece"): 12,
}  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
YEAR = 2026
SKILLS = ("qa", "shop_call", "general_call", "math")
TOGETHER = "together"
"""The kind of queries that need several skills or calls."""
KINDS = (*SKILLS, TOGETHER)
SINGLE = 0.7
"""Share of queries of one skill among those held out."""
HELD_OUT: dict[Split, int] = {"validation": 1000, "test": 2000}
"""Numbers of queries that are never trained on, by split."""


@dataclass(frozen=True, slots=True)
class Item:
    """A thing of the shop."""

    name: str
    price: int
    stock: int
    facts: tuple[str, ...]


@lru_cache
def items() -> dict[str, Item]:
    """Returns every thing of the shop, by name."""
    rng = Random(seed_of("assistants", "items"))
    sold: dict[str, Item] = {}
    for adjective in ADJECTIVES:
        for noun in NOUNS:
            facts = (*(str(rng.randint(1, 9)) for _ in range(4)), rng.choice(CITIES), rng.choice(CITIES))
            sold[f"{adjective} {noun}"] = Item(f"{adjective} {noun}", rng.randint(1, 9), rng.randint(3, 9), facts)
    return sold


@lru_cache
def sentences() -> tuple[str, ...]:
    """Returns the knowledge base: a sentence a fact, in no order."""
    told = [
        f"{item.name} {name} {value}"
        for item in items().values()
        for name, value in zip(FACTS, item.facts, strict=True)
    ]
    Random(seed_of("assistants", "sentences")).shuffle(told)
    return tuple(told)


# Tools -------------------------------------------------------------------------------------------


class Knowledge:
    """A knowledge base that can be searched."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts

    def search(self, words: str) -> str:
        """The two sentences that match the words best."""
        return _searched(self._texts, words[:200])


@lru_cache(maxsize=4096)
def _searched(texts: tuple[str, ...], query: str) -> str:
    return " ; ".join(index(texts).best(query, 2)) or "nothing"


class Shop:
    """A shop's database, of one episode: a replay makes it again and repeats what was bought."""

    def __init__(self, catalogue: tuple[tuple[str, int, int], ...]) -> None:
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.deserialize(_image(catalogue))

    def __del__(self) -> None:
        """Closes the database, in whichever thread the episode is let go of: Python 3.13 warns of one left open."""
        self._database.close()

    def price(self, item: str) -> int:
        """What one of an item costs."""
        return self._row(item)[0]

    def stock(self, item: str) -> int:
        """How many of an item are left."""
        return self._row(item)[1]

    def buy(self, item: str, count: int) -> int:
        """Buys so many of an item; what they cost together."""
        price, stock = self._row(item)
        if not 1 <= count <= stock:
            raise ValueError(f"there are {stock} of {item}")
        self._database.execute("UPDATE items SET stock = stock - ? WHERE name = ?", (count, item))
        return price * count

    def _row(self, item: str) -> tuple[int, int]:
        row = self._database.execute("SELECT price, stock FROM items WHERE name = ?", (item,)).fetchone()
        if row is None:
            raise ValueError(f"no item {item[:40]!r}")
        return row


@lru_cache(maxsize=8)
def _image(catalogue: tuple[tuple[str, int, int], ...]) -> bytes:
    """Returns the database as it is before anything was bought: to copy it is cheaper than to fill it."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE items (name TEXT PRIMARY KEY, price INTEGER NOT NULL, stock INTEGER NOT NULL)")
        database.executemany("INSERT INTO items VALUES (?, ?, ?)", catalogue)
        database.commit()
        return database.serialize()


@lru_cache
def catalogue() -> tuple[tuple[str, int, int], ...]:
    """Returns the embedded shop's items as name, price and stock."""
    return tuple((item.name, item.price, item.stock) for item in items().values())


def convert(value: int, unit: str, to: str) -> str:
    """An amount in another unit: km, m, cm, kg, g, hour, minute, second, week, day, dozen, piece."""
    if (unit, to) in UNITS:
        return str(value * UNITS[unit, to])
    if (to, unit) in UNITS:
        return f"{value / UNITS[to, unit]:g}"
    raise ValueError(f"no way from {unit[:20]} to {to[:20]}")


def weekday(day: int, month: int) -> str:
    """The day of the week of a date of 2026."""
    return WEEKDAYS[datetime.date(YEAR, month, day).weekday()]


def distance(start: str, end: str) -> int:
    """Hours by train between two cities."""
    if start not in CITIES or end not in CITIES:
        raise ValueError("no such city")
    return 1 + seed_of("assistants", *sorted((start, end))) % 40


# Queries -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Query(Task):
    """Something a user asks; `answer` and `kind` say what it comes to and which skill it needs."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """A delegation of a plan. task: with {0}, {1} for the results so far."""

    agent: str
    task: str


def query(split: Split, number: int, kinds: Sequence[str] = KINDS) -> Query:
    """Returns the query at an index of a split: to train on, drawn for ever, of these kinds; held out, each once."""
    if split == "train":
        rng = Random(seed_of("assistants", split, number))
        text = _of_split(rng.choice(kinds), split, rng)
    else:
        text = held_out(split)[number]
    return Query(f"{split}-{number}", split, query=text, answer=answered(text), kind=kind_of(text))


@lru_cache
def held_out(split: Split) -> tuple[str, ...]:
    """Returns the distinct queries of a held-out split: of forty, seven of each skill and twelve of several."""
    rng = Random(seed_of("assistants", split))
    turn = (SKILLS * 7)[: int(40 * SINGLE)] + (TOGETHER,) * (40 - int(40 * SINGLE))
    texts: dict[str, None] = {}
    while len(texts) < HELD_OUT[split]:
        kind = turn[len(texts) % 40]
        texts.setdefault(_of_split(kind, split, rng))
    return tuple(texts)


def _of_split(kind: str, split: Split, rng: Random) -> str:
    while split_of(text := drawn(kind, rng)) != split:
        pass
    return text


def kind_of(text: str) -> str:
    """Returns the skill that a query needs, or TOGETHER."""
    agents = plan(text)
    return agents[0].agent if len(agents) == 1 else TOGETHER


def drawn(kind: str, rng: Random) -> str:
    """Returns a query of a kind."""
    item, other = (rng.choice(list(items())) for _ in range(2))
    if kind == "qa":
        return f"{rng.choice(FACTS)} of {item}"
    if kind == "shop_call":
        return rng.choice((f"price of {item}", f"stock of {item}", f"buy {rng.randint(1, 3)} {item}"))
    if kind == "general_call":
        return rng.choice((_conversion, _date, _trip))(rng)
    if kind == "math":
        return _sum(rng)
    return rng.choice(
        (
            f"price of {item} + {rng.randint(1, 9)}",
            f"price of {item} + price of {other}",
            f"price of {item} + weight of {other}",
            f"weight of {item} in g",
            f"buy {rng.randint(1, 3)} {item} , stock left",
        )
    )


def _conversion(rng: Random) -> str:
    large, small = rng.choice(list(UNITS))
    if rng.random() < 0.5:
        return f"{rng.randint(1, 120)} {large} in {small}"
    return f"{rng.randint(1, 120) * UNITS[large, small]} {small} in {large}"


def _date(rng: Random) -> str:
    date = datetime.date(YEAR, 1, 1) + datetime.timedelta(days=rng.randrange(365))
    return f"weekday of {date.day} {date.month}"


def _trip(rng: Random) -> str:
    return "hours from {} to {}".format(*rng.sample(CITIES, 2))


def _sum(rng: Random) -> str:
    while True:
        rest = (f"{rng.choice('+-')} {rng.randint(1, 6)}" for _ in range(rng.randint(2, 3)))
        text = " ".join([f"{rng.randint(1, 6)}", *rest])
        if min(steps(text)) >= 0:
            return text


NUMBER = r"-?\d+"
OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__}


def steps(text: str) -> list[int]:
    """Returns the results of a sum, operation by operation, from the left."""
    first, *rest = text.split()
    results = [int(first)]
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        results.append(OPERATIONS[sign](results[-1], int(number)))
    return results[1:]


SEVERAL = {
    r"price of (?P<a>.+) \+ (?P<n>\d+)": (("shop_call", "price of <a>"), ("math", "{0} + <n>")),
    r"price of (?P<a>.+) \+ price of (?P<b>.+)": (
        ("shop_call", "price of <a>"), ("shop_call", "price of <b>"), ("math", "{0} + {1}"),
    ),
    r"price of (?P<a>.+) \+ weight of (?P<b>.+)": (
        ("shop_call", "price of <a>"), ("qa", "weight of <b>"), ("math", "{0} + {1}"),
    ),
    r"weight of (?P<a>.+) in g": (("qa", "weight of <a>"), ("general_call", "{0} kg in g")),
    r"buy (?P<n>\d+) (?P<a>.+) , stock left": (("shop_call", "buy <n> <a>"), ("shop_call", "stock of <a>")),
}  # fmt: skip
"""Queries of several errands: who is told what, with {0} and {1} for the results so far."""
TASKS = {
    "price": ("shop_call", r"price of (?P<item>.+)"),
    "stock": ("shop_call", r"stock of (?P<item>.+)"),
    "buy": ("shop_call", r"buy (?P<count>\d+) (?P<item>.+)"),
    "convert": ("general_call", r"(?P<value>\d+) (?P<unit>\w+) in (?P<to>\w+)"),
    "weekday": ("general_call", r"weekday of (?P<day>\d+) (?P<month>\d+)"),
    "distance": ("general_call", r"hours from (?P<start>\w+) to (?P<end>\w+)"),
    "search": ("qa", rf"(?P<fact>{'|'.join(FACTS)}) of (?P<item>.+)"),
}
"""Tasks that a tool does: the role that owns it, and the pattern from which its arguments are read."""


def plan(text: str) -> tuple[Delegation, ...]:
    """Returns the delegations that answer a query, in order; its answer is the last one's. () for unknown queries."""
    for pattern, errands in SEVERAL.items():
        if match := re.fullmatch(pattern, text):
            return tuple(Delegation(agent, _filled(task, match.groupdict())) for agent, task in errands)
    if re.fullmatch(rf"{NUMBER}( [+-] {NUMBER})+", text):
        return (Delegation("math", text),)
    return tuple(Delegation(agent, text) for agent, pattern in TASKS.values() if re.fullmatch(pattern, text))


def _filled(template: str, parts: dict[str, str]) -> str:
    for name, part in parts.items():
        template = template.replace(f"<{name}>", part)
    return template


def tool_call(task: str) -> tuple[str, dict[str, str | int]] | None:
    """Returns the tool that does a specialist's task, and its arguments; None where none does."""
    for tool, (_, pattern) in TASKS.items():
        if match := re.fullmatch(pattern, task):
            parts = match.groupdict()
            if tool == "search":
                return tool, {"words": f"{parts['item']} {parts['fact']}"}
            return tool, {name: int(value) if value.isdigit() else value for name, value in parts.items()}
    return None


def answered(text: str) -> str:
    """Returns an expert team's answer to a query."""
    shop, knowledge = Shop(catalogue()), Knowledge(sentences())
    tools = Toolbox(shop.price, shop.stock, shop.buy, convert, weekday, distance, knowledge.search)
    results: list[str] = []
    for errand in plan(text):
        task = errand.task.format(*results)
        if errand.agent == "math":
            results.append(str(steps(task)[-1]))
            continue
        call = tool_call(task)
        assert call is not None
        results.append(read(tools.call(*call).text))
    return results[-1]


def read(observation: str) -> str:
    """Returns the value in a tool's result: all of it, or the last word of the first sentence found."""
    return observation.split(" ; ", maxsplit=1)[0].rsplit(maxsplit=1)[-1]
