"""The words that may stand behind an answer: a unit that fits the question, and nothing that says another answer.

fits("dollars", "", "How many dollars are left?")    # True
fits("cents", "", "How many dollars are left?")      # False: another unit of money is asked for
fits("wrong", "", "How many pens are there?")        # False: no unit, and no word of the question
"""

from __future__ import annotations

import re
from functools import cache

WORD = re.compile(r"[^\W\d_]+|[$€£¥¢%°]")
COUNTED = re.compile(r"how (?:many|much)\s+((?:[^\W\d_]+\s+){0,2}[^\W\d_]+)", re.IGNORECASE)
"""Pattern of what a question counts, in its next three words."""
ASKED = re.compile(r"[^.!?]*\?")
KINDS = (
    "$ dollar usd buck | cent ¢ penny pence | € euro eur | £ gbp | ¥ yen | rupee | peso | yuan",
    "km kilometer kilometre | m meter metre | cm centimeter centimetre | mm millimeter millimetre | mi mile | "
    "yd yard | foot feet ft | inch inche",
    "second sec | minute min | hour hr | day | week | month | year yr | decade | century",
    "g gram gramme | kg kilogram kilo | mg milligram | ton tonne | pound lb | ounce oz",
    "liter litre l | ml milliliter millilitre | gallon gal | quart | pint",
    "° degree deg | radian rad",
    "% percent",
)
"""Units by what they measure; names of one unit stand together, without the plural's s."""
LINKS = frozenset({"per", "of", "a", "an", "the", "each", "in", "total", "altogether", "all", "away", "old", "left"})
"""Words that say no other answer."""


def fits(unit: str, golds: str, question: str) -> bool:
    """Returns True if what stands behind an answer says no other answer.

    Each of its words is the gold answer's, a word of the question, or a unit. A unit must be the one of its kind that
    the gold answer has, else that is counted, asked for or mentioned in the question; if there is none, any fits. If
    the gold answer has a unit, that must be among them.

    Args:
        unit: the words behind the answer.
        golds: those behind the gold answer.
        question: as it was asked; "": not known.
    """
    words, said, known = _words(unit), _words(golds), _words(question)
    if not words:
        return True
    if said - LINKS and not any(said & _names(word) for word in words):
        return False
    sentence = " ".join(ASKED.findall(question))
    counted = _words(" ".join(COUNTED.findall(sentence)))
    places = (said, counted, _words(sentence), known)
    for word in words - said - LINKS:
        if word not in _units():
            if word not in known:
                return False
            continue
        names, kind = _units()[word]
        if not kind & (said | counted) and any(each in _units() for each in counted):
            return False  # minutes are counted, and these are kilometres
        if not names & next((place & kind for place in places if place & kind), names):
            return False
    return True


def _names(word: str) -> frozenset[str]:
    """Returns a word and, if it is a unit, its other names."""
    return _units()[word][0] if word in _units() else frozenset({word})


@cache
def _units() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Returns, by each name of a unit, all its names, and those of all units of its kind."""
    found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for kind in KINDS:
        units = [frozenset(unit.split()) for unit in kind.split("|")]
        found |= {name: (names, frozenset().union(*units)) for names in units for name in names}
    return found


def _words(text: str) -> frozenset[str]:
    """Returns the words of a text, without the plural's s."""
    return frozenset(map(_singular, WORD.findall(text.casefold())))


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word.removesuffix("s") if len(word) > 1 else word
