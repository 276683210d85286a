"""Rewards that need no Python: `environment.rewards = ["number"]` compares a reply with the row's `answer`.

| name     | a reply earns 1 if                                                                              |
| exact    | it is the answer, apart from case, sentence punctuation, articles and spaces                     |
| number   | it contains one number, and that is the answer's; several different numbers earn nothing        |
| contains | it contains every word of the answer, is not much longer, and names nothing else to be paid for  |
| regex    | a pattern matches all of it (`environment.pattern`, or the row's column `pattern`)              |
| json     | it is JSON equal to the answer's, or has the answer's values at `environment.keys`              |
| judge    | a policy that is not trained answers yes when it is asked about it                              |

Every other reply earns 0. Each function here is pure, and no reply makes it raise. `regex` runs in a worker, because a
pattern may take any time. `judge` is a role, see `prompts.py`; `verdict` reads its answer.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

NAMED = ("exact", "number", "contains", "regex", "json", "judge")
"""Rewards by name."""
COMPARED = ("exact", "number", "contains", "json")
"""Rewards that compare a reply with the row's answer."""
ARTICLES = frozenset({"a", "an", "the"})
SPARE = 4
"""Words that a reply of `contains` may have besides twice the answer's."""
LONGEST = 20_000
"""Characters of a reply or an answer that is compared; a longer one earns nothing."""
MOST_DIGITS = 40
MATCH_S = 1.0
"""Seconds that a pattern may take on a reply."""
PIECE = 100
"""Characters that are normalised at once: the time of it grows with the square of how many marks stand together."""
YES = frozenset({"yes", "accept", "accepts", "accepted"})
NO = frozenset({"no", "reject", "rejects", "rejected"})
FILLERS = frozenset({
    "the", "answer", "is", "it", "its", "this", "that", "there", "so", "i", "think", "believe", "my", "final",
    "correct", "right", "must", "would", "should", "will", "be", "was", "are", "were", "of", "to", "in", "on", "at",
    "by", "for", "with", "from", "as", "because", "therefore",
})  # fmt: skip
"""Words that a reply of `contains` may have besides the answer's where the table's other answers are not known."""
ALIKE = str.maketrans(
    {"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\u2010": "-", "\u2019": "'", "\ufe0e": "", "\ufe0f": ""}
)
RAISED = re.compile("[\u00b9\u00b2\u00b3\u2070\u2074-\u207b]+")
"""Superscripts, which are written with ^ before they are normalised: 5² is not 52."""
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*)(?<=\S)\1(?![\w*])")
ARTICLE = re.compile(r"(?<![^\s\"'(\[])(?:an?|the) (?=[\"'(\[\u2018\u201c]*\w)")
"""An article stands before a word: in `vitamin A` and `a + b` there is none."""
UNUSUAL = re.compile(r"[^\w\s\x00-\x7f]")
ATOM = re.compile(
    r"(?:(?<![\w.])\.(?=\d))?[^\W_]+(?:['.][^\W_]+|(?<=\d),(?=\d)[^\W_]+)*"  # a word or a number
    r"|[+<>=*/%^&|~]|!(?==)|(?<!\w)!(?=[\w(])|(?<=\d)!|(?<=\w)#+|#{1,3}(?=\w)"  # a sign that is no punctuation there
    r"|(?<!\w)-{1,3}(?=[^\w\s-]?\.?\w)|(?<=[\d)])-{1,3}(?=\(|\.?\d)|(?<=[\d)] )-(?= -?\.?\d)"  # a minus, no hyphen
)
DROPPED = re.compile(r"'(?!\d)|\.(?!\d)|(?<=\D)\.")
"""Signs that are left out within a word, as in don't and U.S."""
CHUNK = re.compile(r"(?<![\w.,])-?[.,]?\w(?:\w|[.,/](?=\w)|(?<=[0-9][eE])[+-](?=[0-9]))*")
"""A piece of text that is one number or none: with a unit it is one; 4x13, 2,5,7 and 3.14.15 are none."""
OWED = re.compile(r"-[$\u00a3\u00a5\u20ac](?=[0-9.])")
NUMBER = re.compile(
    r"-?(?:[0-9]+/[0-9]+|(?:(?P<grouped>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?)|[0-9]*[.,]?[0-9]+)"
    r"(?:[eE][+-]?[0-9]{1,2})?)"
)


def exact(reply: str, answer: str) -> float:
    """Returns 1.0 if a reply is the answer in other case, punctuation, articles or spaces, otherwise 0.0."""
    return float(max(len(reply), len(answer)) <= LONGEST and meaning(reply) == meaning(answer))


def number(reply: str, answer: str) -> float:
    """Returns 1.0 if the only number of a reply is the answer's, otherwise 0.0. The same number may be repeated."""
    there, right = numbers(reply[:LONGEST]), numbers(answer[:LONGEST])
    return float(len(there) == 1 and there == right and len(reply) <= LONGEST)


def contains(reply: str, answer: str, others: Sequence[str] = ()) -> float:
    """Returns 1.0 if a reply contains the answer's words and little else, otherwise 0.0.

    The words may be in any order. So that a list of candidates earns nothing, a reply may have at most twice as many
    words as the answer and `SPARE` more, and none of the other answers besides the right one; where these are not
    known, every other word must be one of `FILLERS`.

    Args:
        others: answers of the same table, if it has few: a reply that contains another of them earns nothing.
    """
    if max(len(reply), len(answer)) > LONGEST:
        return 0.0
    articles = any(each.strip(" .()").casefold() in ARTICLES for each in (answer, *others))  # A may be an option
    mine, right = Counter(words(reply, articles)), Counter(words(answer, articles))
    if not right or mine.total() > 2 * right.total() + SPARE or not right <= mine:
        return 0.0
    left = mine - right
    if not others:
        return float(left.keys() <= FILLERS | right.keys())
    wrong = (Counter(words(other, articles)) for other in others)
    return float(
        not any(other and other != right and other <= mine and (other <= left or not other <= right) for other in wrong)
    )


def same_json(reply: str, answer: str, keys: Sequence[str] = ()) -> float:
    """Returns 1.0 if a reply is the answer's JSON, otherwise 0.0. A reply may stand in a Markdown fence.

    Args:
        keys: if there are any, the reply must be an object that has them all, with the answer's values where the
            answer has them; its other keys do not matter. An empty answer asks for the keys alone.
    """
    try:
        mine = _plain(as_json(_unfenced(reply)))
        right = _plain(as_json(answer)) if answer.strip() or not keys else None
    except (ValueError, RecursionError):
        return 0.0
    if not keys:
        return float(mine == right)
    if not isinstance(mine, dict) or not mine.keys() >= set(keys):
        return 0.0
    if not answer.strip():
        return 1.0
    wanted = {key: right[key] for key in keys if isinstance(right, dict) and key in right}
    return float(bool(wanted) and all(mine[key] == value for key, value in wanted.items()))


def matched(pattern: str, reply: str) -> bool | None:
    """Returns True if a pattern matches all of a reply without the space around it; None if that took too long.

    It runs as a call in a worker, where an alarm ends a match after `MATCH_S` seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        return re.fullmatch(pattern, reply.strip()) is not None
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, MATCH_S)
    try:
        return re.fullmatch(pattern, reply.strip()) is not None
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def verdict(reply: str) -> bool | None:
    """Returns True if the first word of a reply is yes or accept, False if it is no or reject, otherwise None."""
    first = re.match(r"\W*(\w+)", reply)
    word = first[1].casefold() if first else ""
    return True if word in YES else False if word in NO else None


def readable(name: str, reply: str) -> bool | None:
    """Returns True if a reply has the form that a reward reads, right or wrong; None if it reads every form."""
    if name == "number":
        return len(numbers(reply[:LONGEST])) == 1
    if name == "json":
        try:
            as_json(_unfenced(reply))
        except ValueError:
            return False
        return True
    return None


def unfit(name: str, answer: str, keys: Sequence[str] = ()) -> str:
    """Returns why a reward can never be earned with this answer, in words; "" if it can."""
    if len(answer) > LONGEST:
        return f"its answer has more than {LONGEST:,} characters"
    if name in ("exact", "contains") and not answer.strip():
        return "its answer is empty"
    if name == "contains" and not words(answer):
        return "its answer has no word"
    if name == "number" and len(numbers(answer)) != 1:
        return "its answer is not one number"
    return _unfit_data(answer, keys) if name == "json" and (answer.strip() or not keys) else ""


def meaning(text: str) -> tuple[str, ...]:
    """Returns the words and signs of a text, which `exact` compares; all of it if it has none."""
    return tuple(atom for _, atom in _atoms(text)) or (text.strip(),)


def words(text: str, articles: bool = False) -> list[str]:
    """Returns the words of a text without case and punctuation, and without articles unless they are asked for.

    A sign belongs to the word at which it stands: -3 is not 3, and C++ is not C. Hyphens separate words.
    """
    found: list[str] = []
    for attached, atom in _atoms(text, articles):
        if attached:
            found[-1] += atom
        else:
            found.append(atom)
    return found


def numbers(text: str) -> set[Fraction | str]:
    """Returns the different numbers in a text, as exact fractions; one that is too long stands for itself.

    1,200 is a thousand two hundred, 3,5 and 3.5 are the same, 3/4 is one number, and so is 5km. Other digits within a
    word are none.
    """
    found: set[Fraction | str] = set()
    for chunk in CHUNK.finditer(OWED.sub("-", text.translate(ALIKE))):
        match = NUMBER.match(chunk[0])
        if not match or not all(sign.isalpha() or sign in ".,/" for sign in chunk[0][match.end() :]):
            continue
        said = match[0].replace(",", "" if match["grouped"] else ".")
        try:
            found.add(Fraction(said) if sum(map(str.isdigit, said)) <= MOST_DIGITS else said)
        except ZeroDivisionError:
            found.add(said)
    return found


def as_json(text: str) -> Any:
    """Returns what a text says as JSON.

    Raises:
        ValueError: it is no JSON, or holds numbers or depths that JSON data has not.
    """
    if len(text) > LONGEST:
        raise ValueError("too long")
    try:
        return json.loads(text, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def choices(answers: Iterable[str], most: int) -> tuple[str, ...]:
    """Returns the different answers of a table, in order, if there are at most `most` of them; otherwise none."""
    different: dict[tuple[str, ...], str] = {}
    for answer in answers:
        different.setdefault(meaning(answer[:LONGEST]), answer)
        if len(different) > most:
            return ()
    return tuple(different.values())


def _atoms(text: str, articles: bool = False) -> list[tuple[bool, str]]:
    """Returns the words and signs of a text, each with True if it is attached to the one before."""
    folded = " ".join(map(_folded, RAISED.sub(r"^\g<0>", text).split())).translate(ALIKE)
    folded = EMPHASIS.sub(r"\2", folded)
    if not articles:
        folded = ARTICLE.sub("", folded)
    found, end = list[tuple[bool, str]](), -1
    for match in ATOM.finditer(UNUSUAL.sub(_stand_in, folded)):
        found.append((match.start() == end, DROPPED.sub("", folded[match.start() : match.end()])))
        end = match.end()
    return found


def _stand_in(sign: re.Match[str]) -> str:
    """Returns a letter for a combining mark and a plus for a symbol, so that `ATOM` finds them; others as they are."""
    kind = unicodedata.category(sign[0])
    return "x" if kind[0] == "M" else "+" if kind in ("Sm", "So") else sign[0]


def _folded(word: str) -> str:
    """Returns a word in one normal form, made piece by piece."""
    pieces = (word[at : at + PIECE] for at in range(0, len(word), PIECE))
    return "".join(unicodedata.normalize("NFKC", piece).casefold() for piece in pieces)


def _unfenced(reply: str) -> str:
    """Returns a reply without a Markdown fence around all of it."""
    first, _, rest = reply.strip().partition("\n")
    return rest[:-3] if first.rstrip() in ("```", "```json") and rest.endswith("```") else reply


def _unfit_data(answer: str, keys: Sequence[str]) -> str:
    """Returns why no reply can equal an answer as JSON, or at the keys; "" if one can."""
    try:
        right = as_json(answer)
    except ValueError:
        return "its answer is not JSON"
    if keys and not (isinstance(right, dict) and any(key in right for key in keys)):
        return f"its answer is no object with {' or '.join(keys)}"
    return ""


def _plain(value: Any) -> Any:
    """Returns a JSON value in which true is not 1."""
    if isinstance(value, dict):
        return {key: _plain(its) for key, its in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return (type(value) is bool, value)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _too_long(*_: Any) -> None:
    raise TimeoutError
