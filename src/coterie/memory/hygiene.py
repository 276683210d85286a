"""Checks of notes before they are shown: sanitising, hashes of queries, leaked answers and near-duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b

from coterie.kernel.environment import Task
from coterie.memory.retrieval import words
from coterie.memory.store import Entry, Store

COPIED_WORDS = 8
"""Number of words in a row of the query that a text may not hold."""
NEAR = 0.9
"""Share of common words from which on two queries are nearly one."""
TAMPERED = 0.3
"""Share of a text's characters that a sanitiser may change before the entry is kept apart."""
MARKUP = re.compile(
    r"<\|[^|<>]{0,40}\|>|</?s>|\[/?INST\]|<</?SYS>>|</?(?:tool|think|system|user|assistant)[\w-]*>|```|~~~"
    r"|(?:https?|ftp|file|data):\S+|www\.\S+|\b(?:system|user|assistant|tool)\s*:",
    re.IGNORECASE,
)
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")


def sanitised(text: str, longest: int) -> tuple[str, bool]:
    """Returns a text as it may be shown, and True if so much had to change that it should not be.

    Normal form, one line, no control characters; a chat template's tokens, role markers, fences, tags and
    addresses become a dot.
    """
    plain = unicodedata.normalize("NFC", text)
    changed = sum(unicodedata.category(char)[0] == "C" and not char.isspace() for char in plain)
    plain = " ".join("".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in plain).split())
    changed += sum(len(match) for match in MARKUP.findall(plain))
    while (shorter := MARKUP.sub("·", plain)) != plain:  # what remains may form new markup
        plain = shorter
    return plain[:longest].strip(), changed > TAMPERED * max(1, len(plain) + changed)


def source(query: str) -> str:
    """Returns a name for the query that an entry comes from."""
    return blake2b(" ".join(words(query)).encode(), digest_size=8).hexdigest()


def near_duplicates(store: Store, queries: Iterable[str]) -> list[tuple[Entry, str]]:
    """Returns entries that come from nearly one of these queries, each with the first such: 9 of 10 words shared."""
    known = [(query, frozenset(words(query))) for query in queries]
    pairs: list[tuple[Entry, str]] = []
    for entry in store.entries:
        own = frozenset(words(entry.key))
        pairs += [(entry, query) for query, asked in known if len(own & asked) >= NEAR * len(own | asked)][:1]
    return pairs


def leaks(text: str, task: Task) -> bool:
    """Returns True if a text holds the gold answer (as words, a number, or as it is written) or much of the query."""
    answer, text = (unicodedata.normalize("NFKC", written).casefold().strip() for written in (task.answer, text))
    said = words(text)
    if answer.isascii() and words(answer):
        if f" {' '.join(words(answer))} " in f" {' '.join(said)} ":
            return True
    elif answer and answer in text:
        return True
    if NUMBER.fullmatch(answer) and _number(answer) in map(_number, NUMBER.findall(text)):
        return True
    asked = f" {' '.join(words(task.query))} "
    runs = (said[at : at + COPIED_WORDS] for at in range(len(said) - COPIED_WORDS + 1))
    return any(f" {' '.join(run)} " in asked for run in runs)


def _number(written: str) -> float:
    return float(written.replace(",", ""))
