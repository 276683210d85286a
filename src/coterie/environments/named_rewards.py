"""Rewards that need no Python: `environment.rewards = ["number"]` compares a reply with the row's `answer`.

| name     | a reply earns 1 if                                                                              |
| exact    | it is the answer, apart from case, punctuation, articles and spaces                              |
| number   | it contains one number, and that is the answer's; several different numbers earn nothing        |
| contains | it contains every word of the answer, is not much longer, and names no other answer of the table |
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
MINUS = "\N{MINUS SIGN}"
WORD = re.compile(r"(?:(?<!\w)-(?=\d))?[^\W_]+(?:['\u2019.][^\W_]+|(?<=\d),(?=\d)[^\W_]+)*")
DROPPED = re.compile(r"['\u2019]|(?<!\d)\.|\.(?!\d)")
"""What is left out within a word, as in don't and U.S."""
NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>-?)(?:(?P<above>[0-9]+)/(?P<below>[0-9]+)(?![0-9/])"
    r"|(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)?(?P<part>[.,][0-9]+)?(?<=[0-9])"
    r"(?:[eE](?P<power>[+-]?[0-9]{1,2})(?![0-9]))?)"
)
FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)


def exact(reply: str, answer: str) -> float:
    """Returns 1.0 if a reply is the answer in other case, punctuation, articles or spaces, otherwise 0.0."""
    if max(len(reply), len(answer)) > LONGEST:
        return 0.0
    mine, right = words(reply), words(answer)
    if not right:  # an answer of signs alone, such as +
        return float(reply.strip() == answer.strip())
    return float(mine == right)


def number(reply: str, answer: str) -> float:
    """Returns 1.0 if the only number of a reply is the answer's, otherwise 0.0. The same number may be repeated."""
    there, right = numbers(reply[:LONGEST]), numbers(answer[:LONGEST])
    return float(len(there) == 1 and there == right and len(reply) <= LONGEST)


def contains(reply: str, answer: str, others: Sequence[str] = ()) -> float:
    """Returns 1.0 if a reply contains the answer's words and little else, otherwise 0.0.

    The words may be in any order. So that a list of candidates earns nothing, a reply may have at most twice as many
    words as the answer and `SPARE` more, and none of the other answers besides the right one.

    Args:
        others: answers of the same table, if it has few: a reply that contains another of them earns nothing.
    """
    if max(len(reply), len(answer)) > LONGEST:
        return 0.0
    mine, right = words(reply), Counter(words(answer))
    if not right or len(mine) > 2 * right.total() + SPARE or not right <= Counter(mine):
        return 0.0
    left = Counter(mine) - right
    wrong = (Counter(words(other)) for other in others)
    return float(not any(other and other != right and other <= left for other in wrong))


def same_json(reply: str, answer: str, keys: Sequence[str] = ()) -> float:
    """Returns 1.0 if a reply is the answer's JSON, otherwise 0.0. A reply may stand in a Markdown fence.

    Args:
        keys: if there are any, the reply must be an object that has them all, with the answer's values where the
            answer has them; its other keys do not matter.
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
    return float(not isinstance(right, dict) or all(mine[key] == right[key] for key in keys if key in right))


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
    if name == "json" and (answer.strip() or not keys):
        try:
            as_json(answer)
        except ValueError:
            return "its answer is not JSON"
    return ""


def words(text: str) -> list[str]:
    """The words of a text without case, punctuation and articles; the articles if there is nothing else.

    The sign and the decimal point of a number stay, since -3 is not 3. Hyphens and slashes separate words.
    """
    folded = " ".join(map(_folded, text.split())).replace(MINUS, "-")
    kept = [DROPPED.sub("", word[0]) for word in WORD.finditer(folded)]
    return [word for word in kept if word not in ARTICLES] or kept


def numbers(text: str) -> set[Fraction | str]:
    """The different numbers in a text, as exact fractions; one that is too long stands for itself.

    1,200 is a thousand two hundred, 3,5 and 3.5 are the same, and 3/4 is one number. Digits within a word are none.
    """
    found: set[Fraction | str] = set()
    for match in NUMBER.finditer(text.replace(MINUS, "-")):
        digits = sum(map(str.isdigit, match[0]))
        if not digits:
            continue
        if digits > MOST_DIGITS or (match["below"] and not int(match["below"])):
            found.add(match[0])
            continue
        sign = -1 if match["sign"] else 1
        if match["below"]:
            found.add(sign * Fraction(int(match["above"]), int(match["below"])))
        else:
            whole = (match["whole"] or "0").replace(",", "")
            value = Fraction(f"{whole}{(match['part'] or '').replace(',', '.')}")
            found.add(sign * value * Fraction(10) ** int(match["power"] or 0))
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
    """The different answers of a table, in order, if there are at most `most` of them; otherwise none."""
    different: dict[tuple[str, ...], str] = {}
    for answer in answers:
        different.setdefault(tuple(words(answer[:LONGEST])), answer)
        if len(different) > most:
            return ()
    return tuple(different.values())


def _folded(word: str) -> str:
    """A word in one form, piece by piece."""
    pieces = (word[at : at + PIECE] for at in range(0, len(word), PIECE))
    return "".join(unicodedata.normalize("NFKC", piece).casefold() for piece in pieces)


def _unfenced(reply: str) -> str:
    """A reply without a Markdown fence around all of it."""
    fenced = FENCED.fullmatch(reply.strip()[: LONGEST + 1])
    return fenced[1] if fenced else reply


def _plain(value: Any) -> Any:
    """A JSON value in which true is not 1."""
    if isinstance(value, dict):
        return {key: _plain(its) for key, its in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return (type(value) is bool, value)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _too_long(*_: Any) -> None:
    raise TimeoutError
