"""Words: how the words of a text are counted, and the word lists of the writing rewards.

The lists are ours, based on the twelve kinds of connectives in the published reward. They are matched as whole words;
the published code also finds them inside other words ("as" in "was").
"""

from __future__ import annotations

import re
from functools import lru_cache

CONNECTIVES: dict[str, tuple[str, ...]] = {
    "elaboration": ("also", "furthermore", "moreover", "besides", "additionally", "in addition", "what is more"),
    "example": ("for example", "for instance", "such as", "to illustrate", "namely"),
    "explanation": ("in other words", "that is", "put simply", "to explain", "meaning that"),
    "cause": ("because", "therefore", "thus", "hence", "consequently", "as a result", "since", "so"),
    "contrast": ("but", "however", "yet", "in contrast", "on the other hand", "whereas", "instead"),
    "sequence": ("then", "next", "first", "second", "finally", "afterwards", "later"),
    "emphasis": ("indeed", "certainly", "clearly", "notably", "in fact", "above all"),
    "summary": ("in short", "overall", "in summary", "to sum up", "in conclusion"),
    "comparison": ("likewise", "similarly", "in the same way", "just as", "equally"),
    "concession": ("although", "even though", "despite", "admittedly", "granted"),
    "condition": ("if", "unless", "provided that", "in case", "otherwise"),
    "time": ("when", "while", "meanwhile", "before", "after", "until"),
}
STOP = frozenset(
    [
        "a",
        "about",
        "after",
        "again",
        "all",
        "also",
        "am",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "because",
        "been",
        "before",
        "being",
        "below",
        "between",
        "both",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "doing",
        "down",
        "during",
        "each",
        "few",
        "for",
        "from",
        "further",
        "had",
        "has",
        "have",
        "having",
        "he",
        "her",
        "here",
        "hers",
        "him",
        "his",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "just",
        "me",
        "more",
        "most",
        "my",
        "no",
        "nor",
        "not",
        "now",
        "of",
        "off",
        "on",
        "once",
        "only",
        "or",
        "other",
        "our",
        "out",
        "over",
        "own",
        "same",
        "she",
        "should",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "through",
        "to",
        "too",
        "under",
        "until",
        "up",
        "very",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "whom",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # noqa: RUF001
SENTENCE = re.compile(r"[.!?\n]+")
ENDINGS = ("ingly", "edly", "ings", "ing", "edly", "ies", "ied", "ers", "er", "es", "ed", "ly", "s")


def words(text: str) -> list[str]:
    """Returns a text's words, in lower case."""
    return WORD.findall(text.lower())


def sentences(text: str) -> list[list[str]]:
    """Returns the words of a text's sentences, without those that have none."""
    return [its for part in SENTENCE.split(text) if (its := words(part))]


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Returns a word without its ending, roughly: of "walking" and "walked" the same."""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def content(its: list[str]) -> list[str]:
    """Returns the stems of the words that are no stop-words."""
    return [stem(word) for word in its if word not in STOP]


def ramp(value: float, low: float, high: float) -> float:
    """Returns 0 up to `low`, 1 from `high` on, and values on a line in between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def tent(value: float, begin: float, low: float, high: float, end: float) -> float:
    """Returns 0 up to `begin`, 1 from `low` to `high`, 0 from `end` on, and values on lines in between."""
    return min(ramp(value, begin, low), 1.0 - ramp(value, high, end))
