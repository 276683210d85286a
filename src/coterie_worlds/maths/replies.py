r"""Reads the one answer, or the one calculation, that a reply in ordinary words ends with.

    stated("4 * 3 = 12. The answer is 12.")    # "12"
    stated("It is 11, 12 or 13.")              # ""
    worked("5 + 4 = 9")                        # "5 + 4"

A reply that offers several numbers where its answer should stand has no answer, so a list of guesses earns nothing.
"""

from __future__ import annotations

import re

from coterie_worlds.maths.calculator import value
from coterie_worlds.maths.equal import boxed

NUMBER = re.compile(r"(?<![\w.,/])[-−]?\s?\$?\d+(?:,\d{3})*(?:\.\d+)?(?:\s?/\s?\d+)?(?![\w/])")  # noqa: RUF001
SENTENCE = re.compile(r"\n+|(?<=[.!?;])\s+")
ANSWER = re.compile(r"\banswer\b(?:\s+(?:is|would be|to [^.:]*? is))?\s*[:=]?\s*(.*)", re.IGNORECASE | re.DOTALL)
DENIAL = re.compile(r"\b(?:not|never|no|neither|nor)\b|n't\b", re.IGNORECASE)
DECORATION = re.compile(r"[*`$]|\\[()\[\]]")
TIMES = re.compile(r"(?<=[\d)])\s*[x×]\s*(?=[\d(])")  # noqa: RUF001
PREFIX = re.compile(r"^(?:calc(?:ulate|ulation)?\b)?\s*:?\s*", re.IGNORECASE)
OPERATION = re.compile(r"[\d)]\s*[-+*/%^]")


def stated(text: str) -> str:
    r"""Returns the answer that a reply ends with, or "" if there is none or more than one.

    The answer stands in \boxed{...}, <answer> or behind ####, as `boxed` reads it. Otherwise it is the only number of
    the last sentence: behind the word "answer" if the sentence has it, and behind its last equality sign. All sentences
    with the word "answer" must agree, and so must a row of sentences that are only a number.
    """
    if marked := boxed(text):
        return marked
    text = DECORATION.sub("", text.rpartition("</think>")[2])
    sentences = [sentence.strip() for sentence in SENTENCE.split(text) if sentence.strip()]
    if not sentences:
        return ""
    answer = _number_of(sentences[-1])
    rivals = [_number_of(sentence) for sentence in sentences[:-1] if ANSWER.search(sentence)]
    for sentence in reversed(sentences[:-1]):
        if not NUMBER.fullmatch(sentence.strip(" .")):
            break
        rivals.append(_number_of(sentence))
    return answer if all(rival in ("", answer) for rival in rivals) else ""


def _number_of(sentence: str) -> str:
    """Returns the only number that a sentence offers; "" if the sentence denies it or offers several."""
    if DENIAL.search(sentence):
        return ""
    if match := ANSWER.search(sentence):
        sentence = match[1]
    numbers = {found.group().replace(" ", "") for found in NUMBER.finditer(sentence.rpartition("=")[2])}
    return numbers.pop().replace("−", "-").replace("$", "") if len(numbers) == 1 else ""  # noqa: RUF001


def worked(text: str) -> str:
    """Returns the calculation that a reply consists of or ends with, or "" if there is none or more than one.

    It is the last line, with or without `calc` before it and with or without what it comes to. A line of several
    calculations that differ has none.
    """
    lines = [
        line
        for line in DECORATION.sub(lambda sign: sign[0] if sign[0] == "*" else "", text).splitlines()
        if line.strip()
    ]
    line = PREFIX.sub("", lines[-1].strip()).rstrip(" .") if lines else ""
    parts = [TIMES.sub(" * ", part).strip() for part in line.split("=")]
    values = {part: _value(part) for part in parts if part and part != "x"}
    if not values or None in values.values():
        return ""
    calculations = [part for part in values if OPERATION.search(part)]
    if len({values[part] for part in calculations}) > 1:
        return ""
    return (calculations or [next(iter(values))])[0]


def _value(expression: str) -> object:
    try:
        return value(expression)
    except ValueError:
        return None
