"""A generated corpus: facts about a person, which two roles state without seeing each other's text.

A source is a line of facts, `ada : town oslo ; job baker ; …`; a text tells facts, a sentence each, in fixed forms, so
that what is true, told twice or left out can be counted, not guessed.

    R = min(P1, P2) F (0.5 T + 0.25 N + 0.25 C)      in [0, 1]

P1, P2: the share of a text's sentences that tell a fact of the source which the text has not told before; 0 for no
text. F: the share of the source's facts that the two tell together. T: 1 where the second has 1.6 to 3.2 times the
words of the first, falling to 0 at 1.1 and 5. N: the share of the second's facts that the first does not tell. C: three
kinds of connectives at the beginning of the second's sentences that tell a new fact, in thirds. Filler, lists of
connectives, copies of the source and repetition all are sentences that tell nothing new. A string that is not a word is
not counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from coterie.kernel.environment import Split, Task, split_of
from coterie.seeds import seed_of
from coterie_worlds.writing.words import CONNECTIVES, tent, words

NAMES = (
    "ada", "bob", "cleo", "dora", "emil", "finn", "gina", "hugo", "ida", "jack", "kira", "leo", "mona", "nils", "olga",
    "paul", "rosa", "sven", "tina", "uwe", "vera", "walt", "xena", "yuri", "zoe",
)  # fmt: skip
VALUES = {
    "town": ("oslo", "rome", "lima", "cairo", "paris", "delhi", "quito", "berlin", "tunis", "sofia", "bern", "doha"),
    "job": ("baker", "pilot", "nurse", "judge", "clerk", "cook", "miner", "tailor", "guard", "farmer", "actor", "poet"),
    "age": tuple(str(age) for age in range(20, 44, 2)),
    "pet": ("cat", "dog", "fish", "bird", "horse", "goat", "snake", "mouse", "frog", "duck", "sheep", "rabbit"),
    "food": ("rice", "soup", "bread", "pasta", "beans", "cake", "eggs", "corn", "nuts", "plums", "figs", "cheese"),
    "hat": ("red", "blue", "green", "black", "white", "brown", "pink", "gray", "gold", "purple", "orange", "yellow"),
}
SAID = {
    "town": "lives in {}", "job": "works as a {}", "age": "is {} years old", "pet": "has a {}", "food": "likes {}",
    "hat": "wears a {} hat",
}  # fmt: skip
HEADLINE = 2
"""Number of facts that an expert's first text tells."""
WRONG = 0.15
"""Probability that a beginner gets a fact wrong."""
CATEGORIES = {
    word: kind for kind in ("elaboration", "sequence", "emphasis") for word in CONNECTIVES[kind] if " " not in word
}
BEST = 1.0


@dataclass(frozen=True, slots=True)
class WritingSource(Task):
    """A source that two write about. text: the source. facts: attribute and value, if it is one of ours."""

    text: str = ""
    name: str = ""
    facts: tuple[tuple[str, str], ...] = ()


def source(split: Split, index: int) -> WritingSource:
    """Returns the source at a place of a split, drawn until its content falls in that split."""
    rng = Random(seed_of("writing", split, index))
    while True:
        name = rng.choice(NAMES)
        facts = tuple((key, rng.choice(VALUES[key])) for key in rng.sample(sorted(VALUES), len(VALUES)))
        text = f"{name} : {' ; '.join(f'{key} {value}' for key, value in facts)}"
        if split_of(text) == split:
            return WritingSource(f"{split}-{index}", split, query=text, text=text, name=name, facts=facts)


@lru_cache
def forms() -> dict[str, re.Pattern[str]]:
    """Returns patterns of the sentences that tell a fact, by kind of fact."""
    word = r"(\w+)"
    return {key: re.compile(f"{word} {form.format(word)}".replace(" a ", " an? ")) for key, form in SAID.items()}


def sentences(text: str) -> list[str]:
    """Returns a text's sentences, in lower case."""
    return [" ".join(part.lower().split()) for part in re.split(r"[.!?\n]+", text) if part.strip()]


def read(sentence: str, name: str) -> tuple[tuple[str, str] | None, str]:
    """Returns the fact that a sentence tells of somebody, if any, and the kind of connective that it begins with."""
    first, _, rest = sentence.partition(" ")
    kind = CATEGORIES.get(first.rstrip(","), "")
    for key, form in forms().items():
        if (match := form.fullmatch(rest if kind else sentence)) and match[1] == name:
            return (key, match[2]), kind
    return None, ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of a text. facts: those of the source that it tells. share: of its sentences that tell a new one."""

    facts: frozenset[tuple[str, str]]
    share: float
    words: int
    kinds: frozenset[str]


def told(text: str, task: WritingSource) -> Reading:
    """Returns what a text tells of a source: facts, share of sentences with a new one, words and connectives."""
    facts: set[tuple[str, str]] = set()
    kinds: set[str] = set()
    parts = sentences(text)
    new = 0
    for sentence in parts:
        fact, kind = read(sentence, task.name)
        if fact in task.facts and fact not in facts:
            facts.add(fact)
            kinds |= {kind} - {""}
            new += 1
    return Reading(frozenset(facts), new / len(parts) if parts else 0.0, len(words(text)), frozenset(kinds))


def measure(task: WritingSource, first: str, second: str) -> dict[str, float]:
    """Returns the factors of the reward R, and R as `reward`; the formula of the module's docstring."""
    one, two = told(first, task), told(second, task)
    parts = {
        "true": min(one.share, two.share),
        "kept": len(one.facts | two.facts) / len(task.facts),
        "lengths": tent(two.words / max(1, one.words), 1.1, 1.6, 3.2, 5.0),
        "new": len(two.facts - one.facts) / max(1, len(two.facts)),
        "connectives": min(1.0, len(two.kinds) / 3),
    }
    together = 0.5 * parts["lengths"] + 0.25 * parts["new"] + 0.25 * parts["connectives"]
    return {**parts, "reward": parts["true"] * parts["kept"] * together}


def say(name: str, facts: list[tuple[str, str]], connectives: int, rng: Random) -> str:
    """Returns facts as a text, the first sentences with connectives of different kinds."""
    openings = [rng.choice([word for word, its in CATEGORIES.items() if its == kind]) for kind in KINDS[:connectives]]
    lines = []
    for at, (key, value) in enumerate(facts):
        opening = f"{openings[at]} " if at < len(openings) else ""
        lines.append(f"{opening}{name} {SAID[key].format(value)} .")
    return " ".join(lines)


KINDS = tuple(dict.fromkeys(CATEGORIES.values()))


def expert(task: WritingSource, second: bool, rng: Random, beside: str = "") -> str:
    """Returns an expert's text: the first facts; or, with connectives, all others, or all not told beside it."""
    facts = list(task.facts)
    if not second:
        return say(task.name, facts[:HEADLINE], 0, rng)
    rest = [fact for fact in facts if fact not in told(beside, task).facts] if beside else facts[HEADLINE:]
    return say(task.name, rest, 3, rng)


def beginner(task: WritingSource, second: bool, rng: Random) -> str:
    """Returns a beginner's text: any facts, now and then one that is not true, with at most one connective."""
    some = rng.sample(list(task.facts), rng.randint(2, 4) if second else rng.randint(1, 4))
    facts = [(key, rng.choice(VALUES[key]) if rng.random() < WRONG else value) for key, value in some]
    return say(task.name, facts, rng.randint(0, 1) if second else 0, rng)
