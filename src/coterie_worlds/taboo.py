"""Taboo: a hinter describes a word without saying it, and a guesser, who sees only the hint, names the word.

The hinter sees the word and one or two facts about it, and may pass the facts on. The guesser sees the hint and what
kind of thing the word is, such as an animal; or it sees a few words to choose from. Words of validation and test never
occur in training.

Rewards: the team gets 1 for a right guess. A hint that says the word, and a reply that is cut or has the wrong form,
costs its role `FOUL`; after a hint that says the word nobody is asked for a guess.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import ClassVar

from pydantic import Field, field_validator

from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.scene import Message, Prompt, Reply, Scene
from coterie.seeds import seed_of

HINTER, GUESSER = "hinter", "guesser"
FOUL = 0.25
"""Penalty of a reply that is cut, has the wrong form or says the word."""
HELD_OUT = {"validation": 60, "test": 80}
"""Numbers of words that are held out, by split. All others are for training."""
ENDINGS = ("", "s", "es", "ed", "d", "ing", "er", "ers", "y")
STEM_ENDINGS = ("ing", "ed", "er", "ies", "y")
"""Endings with which a word is still said; the second ones behind its stem, as in swimming and icy."""
PLURALS = {
    "child": "children", "foot": "feet", "goose": "geese", "man": "men", "mouse": "mice", "ox": "oxen",
    "person": "people", "tooth": "teeth", "woman": "women",
}  # fmt: skip
INNOCENT = {
    "bat": "tab", "bus": "sub", "deer": "reed", "dog": "god", "golf": "flog", "island": "is land", "pan": "nap",
    "saw": "was", "star": "rats", "wolf": "flow",
}  # fmt: skip
"""Ordinary words that a hint may have, though they are a word backwards or in pieces."""
LOOKALIKES = (
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455\u0501"  # Cyrillic
    "\u03b1\u03b2\u03b5\u03b7\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7"  # Greek
)
DISGUISES = tuple(
    str.maketrans(f"01345789@$!{LOOKALIKES}", f"o{one}eastbgasiabekmhopctyxijsdabenikvoptyx") for one in "il"
)
"""Digits, signs and letters of other alphabets that stand for letters."""
LONG = 5
"""Letters from which a word counts as said in a longer one, such as gingerbread."""
ARTICLES = ("a", "an", "the")
KINDS = {
    "animal": "animal", "body": "part of the body", "clothing": "thing to wear", "fantasy": "being of fairy tales",
    "food": "food or drink", "furniture": "thing in a house", "kitchen": "thing in a kitchen",
    "music": "musical instrument", "nature": "thing in nature", "person": "person", "place": "place", "sport": "sport",
    "thing": "thing", "time": "time of the year or day", "tool": "tool", "vehicle": "vehicle",
}  # fmt: skip
"""Names of the kinds of words, as the guesser is told them."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word, what kind of thing it is, and facts about it, which do not say it."""

    word: str
    kind: str
    facts: str


@dataclass(frozen=True, slots=True)
class Card(Task):
    """A word and facts about it. choices: the words that the guesser chooses from; none: it may say any word."""

    facts: str = ""
    choices: tuple[str, ...] = ()


EXAMPLES = (
    (
        Word("ship", "vehicle", "It carries people and goods over the sea. The Titanic was one."),
        "The Titanic was one, and it crosses the sea.",
    ),
    (
        Word("goose", "animal", "It is a large farm bird that honks. People eat it at Christmas."),
        "It is a large farm bird that honks.",
    ),
    (
        Word("jam", "food", "It is sweet and made from fruit. You spread it on toast from a jar."),
        "It is made from fruit and spread on toast.",
    ),
)
"""Words that are in no split, with a hint for each."""
FILLERS = (
    "fence", "jungle", "ladle", "tiara", "uncle", "yacht", "violet", "tunnel", "banner", "cello", "elbow", "ferry",
    "gravel", "hawk", "insect", "jewel", "kennel", "lizard", "market", "noodle", "otter", "palace", "quilt", "ribbon",
    "satin", "turnip", "urchin", "vest", "walnut", "yeast", "zipper",
)  # fmt: skip
"""Words that are in no split, from which the choices of examples are drawn."""


class Taboo(Environment):
    """A hinter describes a word without saying it; a guesser, who sees only the hint, names it."""

    roles: ClassVar = (HINTER, GUESSER)
    team_reward_range: ClassVar = (0.0, 1.0)

    choices: int = Field(default=0, ge=0, le=32)
    """Number of words that the guesser chooses from, the right one among them. 0: it may say any word."""
    kinds: bool = True
    """Tell the guesser what kind of thing the word is, such as an animal. It has no effect with `choices`."""
    examples: int = Field(default=2, ge=0, le=len(EXAMPLES))
    """Number of examples that each role sees as earlier turns of its chat."""
    hint_tokens: int = Field(default=20, ge=4)
    """Maximum tokens of a hint. A hint that is cut off is passed on, but costs the hinter 0.25."""
    guess_tokens: int = Field(default=8, ge=2)
    """Maximum tokens of a guess. A guess that is cut off is no guess."""

    def inert(self) -> dict[str, str]:
        """Returns `kinds` as without effect if there are words to choose from."""
        return {"kinds": "choices lists the words"} if self.choices else {}

    @field_validator("choices")
    @classmethod
    def _a_choice(cls, choices: int) -> int:
        if choices == 1:
            raise ValueError("choices = 1 is no choice; write 0 for an open guess, or 2 and more")
        return choices

    def count(self, split: Split) -> int:
        """Returns the number of words of the split."""
        return len(words(split))

    def task(self, split: Split, index: int) -> Card:
        """Returns the word at a place of the split; in training all words come in turn, in another order each time."""
        there = words(split)
        if split == "train":
            there = shuffled(index // len(there))
        entry = there[index % len(there)]
        others = [other.word for other in there if other.word != entry.word]
        rng = Random(seed_of("taboo choices", split, index))
        choices = [entry.word, *rng.sample(others, self.choices - 1)] if self.choices else []
        return Card(
            f"{split}-{index}", split, query=entry.word, answer=entry.word, kind=entry.kind, facts=entry.facts,
            choices=tuple(rng.sample(choices, len(choices))),
        )  # fmt: skip

    async def play(self, task: Card, scene: Scene) -> None:
        """Plays one hint and one guess."""
        hint = await scene.ask(HINTER, self.for_hinter(task), max_tokens=self.hint_tokens)
        foul = says(hint.text, task.answer)
        scene.metric("word_said", float(foul))
        scene.metric("hint_cut", float(hint.finish != "stop"))
        if foul or hint.finish != "stop":
            scene.reward(hint, -FOUL)
        if foul:
            scene.team_reward(0.0)
            return scene.fail("the hint says the word")
        guess = await scene.ask(GUESSER, self.for_guesser(task, hint.text), max_tokens=self.guess_tokens)
        named = guessed(guess)
        scene.metric("one_word", float(bool(named)))
        if not named:
            scene.reward(guess, -FOUL)
        right = named in forms(task.answer)
        scene.team_reward(float(right))
        return scene.succeed() if right else scene.fail("another word" if named else "no single word")

    def for_hinter(self, task: Card) -> Prompt:
        """Returns the hinter's prompt: the word and the facts, after the examples."""
        chat: list[Message] = []
        for example, hint in EXAMPLES[: self.examples]:
            chat += said_before(asked_hint(example.word, example.facts), hint)
        return [*chat, {"role": "user", "content": asked_hint(task.answer, task.facts)}]

    def for_guesser(self, task: Card, hint: str) -> Prompt:
        """Returns the guesser's prompt: the hint and the kind or the words, after the examples."""
        chat: list[Message] = []
        for example, earlier in EXAMPLES[: self.examples]:
            among = (example.word, *FILLERS)[: self.choices]
            choices = tuple(Random(seed_of("taboo example", example.word)).sample(among, len(among)))
            chat += said_before(self.asked_guess(earlier, example.kind, choices), example.word)
        return [*chat, {"role": "user", "content": self.asked_guess(hint, task.kind, task.choices)}]

    def asked_guess(self, hint: str, kind: str, choices: tuple[str, ...]) -> str:
        """Returns a question to the guesser."""
        line = " ".join(hint.split())
        if choices:
            return f"Words: {', '.join(choices)}.\n{line}\nWhich of the words is it? Answer with one word."
        return f"Guess the {KINDS[kind] if self.kinds else 'word'}: {line}\nAnswer with one word."

    def demonstrate(self, role: str, task: Card, prompt: Prompt, rng: Random) -> str:
        """Returns the first fact as a hint, or the word as a guess."""
        return f"{task.facts.split('. ')[0].rstrip('.')}." if role == HINTER else task.answer


def asked_hint(word: str, facts: str) -> str:
    """Returns a question to the hinter."""
    return f"{word}: {facts}\nDescribe it in one short sentence. Do not say '{word}'."


def said_before(question: str, reply: str) -> list[Message]:
    """Returns an earlier turn of a chat."""
    return [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]


@cache
def words(split: Split) -> tuple[Word, ...]:
    """Returns the words of a split, in an order that is drawn once and for all."""
    lines = files("coterie_worlds").joinpath("taboo.tsv").read_text(encoding="utf-8").splitlines()
    drawn = sorted((Word(*line.split("\t")) for line in lines), key=lambda entry: seed_of("taboo", entry.word))
    tests, validations = HELD_OUT["test"], HELD_OUT["validation"]
    parts = {"test": drawn[:tests], "validation": drawn[tests : tests + validations]}
    return tuple(parts.get(split, drawn[tests + validations :]))


@cache
def shuffled(epoch: int) -> tuple[Word, ...]:
    """Returns the words for training in the order of an epoch."""
    there = words("train")
    return tuple(Random(seed_of("taboo", epoch)).sample(there, len(there)))


def plain(text: str) -> list[str]:
    """Returns the words of a text in small letters, without accents and signs that are not seen."""
    return re.findall(r"[a-z]+", bared(text).lower())


def bared(text: str) -> str:
    """Returns a text without accents and signs that are not seen."""
    signs = unicodedata.normalize("NFKD", text)
    return "".join(sign for sign in signs if unicodedata.category(sign) not in ("Mn", "Cf"))


def forms(word: str) -> set[str]:
    """Returns a word and its possible plurals, the guesses that are right."""
    plurals = {f"{word}s", f"{word}es", PLURALS.get(word, word)}
    for ending, plural in (("y", "ies"), ("f", "ves"), ("fe", "ves")):
        if word.endswith(ending):
            plurals.add(word.removesuffix(ending) + plural)
    return {word, *plurals}


def says(text: str, word: str) -> bool:
    """Returns True if a hint says a word: as it is, inflected, in a longer word, in pieces, by letters or backwards.

    So does one with digits, signs or letters of other alphabets that look like the word's.
    """
    return any(_says(plain(bared(text).lower().translate(signs)), word) for signs in ({}, *DISGUISES))


def _says(spoken: list[str], word: str) -> bool:
    """Returns True if words say a word."""
    if word in INNOCENT:
        spoken = re.sub(rf"\b{INNOCENT[word]}\b", "", " ".join(spoken)).split()
    stem = word[:-1] if word.endswith(("e", "y")) else f"{word}{word[-1]}"
    inflected = {word[::-1], *forms(word), *(word + end for end in ENDINGS), *(stem + end for end in STEM_ENDINGS)}
    if any(token in inflected or (word in token and (len(word) >= LONG or word * 2 in token)) for token in spoken):
        return True
    for begin in range(len(spoken)):
        piece = ""
        for token in spoken[begin:]:
            piece += token
            if piece == word:
                return True
            if len(piece) >= len(word):
                break
    letters = "".join(token for token in spoken if len(token) == 1)
    return word in letters or word[::-1] in letters


def guessed(reply: Reply) -> str:
    """Returns the single word that a guess is, without an article; "" if it is none or was cut off."""
    spoken = plain(reply.text) if reply.finish == "stop" else []
    if spoken and spoken[0] in ARTICLES:
        spoken = spoken[1:]
    return spoken[0] if len(spoken) == 1 else ""
