"""The published reward of writing (MAGRPO's library): levels of length, vocabulary and style, at most 3.

    structure   0.5 where both texts have 8 to 256 words (of an introduction 128 to 256), else nothing at all
    length      x = characters of the second per character of the first: up to 1 within a band, else nothing more
    vocabulary  y = the same of distinct words: up to 0.5
    style       0.4 t + 0.6 min(J, J1) / J1: t grows with the kinds of connectives (0.4 for one, 0.05 for each more),
                J is the share of words, stop-words apart, that the two have in common (Jaccard)

The formulas are those of the published code, with connectives matched as whole words. The reward ignores the source.
Its real maximum is 2.98, because all twelve kinds give t = 0.95. `prose.py` has a reward that cannot be earned this
way.
"""

from __future__ import annotations

import re
from functools import lru_cache

from coterie_worlds.writing.words import CONNECTIVES, STOP, ramp, tent

BANDS = {"summary": (1.1, 1.6, 3.2, 5.0), "introduction": (0.8, 1.3, 1.6, 2.0)}
"""Bands of the ratio of lengths: where pay begins, where it is whole, and where it ends."""
SIZES = {"summary": (8, 256), "introduction": (128, 256)}
COMMON = {"summary": 0.03, "introduction": 0.23}


def as_published(first: str, second: str, form: str) -> dict[str, float]:
    """Returns the levels of two texts, and `reward`, their sum: a level that earns nothing ends it."""
    least, most = SIZES[form]
    levels = {"structure": 0.0, "length": 0.0, "vocabulary": 0.0, "style": 0.0}
    if all(least <= len(text.split()) <= most for text in (first, second)):
        levels["structure"] = 0.5
        levels["length"] = tent(len(second) / max(1, len(first)), *BANDS[form])
        if levels["length"]:
            levels["vocabulary"] = 0.5 * vocabulary(first, second, form)
        if levels["vocabulary"]:
            levels["style"] = style(first, second, form)
    return {**levels, "reward": sum(levels.values())}


def distinct(text: str) -> set[str]:
    """Returns a text's distinct words."""
    return set(re.findall(r"\w+", text.lower()))


def vocabulary(first: str, second: str, form: str) -> float:
    """Returns a score of the second text's distinct words compared with the first's, 0 to 1."""
    ratio = len(distinct(second)) / max(1, len(distinct(first)))
    return ramp(ratio, 1.3, 2.0) if form == "summary" else tent(ratio, 0.5, 0.7, 1.3, 1.7)


def style(first: str, second: str, form: str) -> float:
    """Returns a score of connectives and of words in common, 0 to 1."""
    searched = second if form == "summary" else f"{first} {second}"
    kinds = len(categories(searched))
    connected = min(1.0, 0.4 + 0.05 * (kinds - 1)) if kinds else 0.0
    one, two = distinct(first) - STOP, distinct(second) - STOP
    common = len(one & two) / max(1, len(one | two))
    return 0.4 * connected + 0.6 * min(common, COMMON[form]) / COMMON[form]


@lru_cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Returns patterns that find each kind of connective, as whole words."""
    return {
        kind: re.compile(rf"\b(?:{'|'.join(map(re.escape, its))})\b", re.IGNORECASE)
        for kind, its in CONNECTIVES.items()
    }


def categories(text: str) -> set[str]:
    """Returns the kinds of connectives in a text."""
    return {kind for kind, pattern in patterns().items() if pattern.search(text)}
