"""Retrieval of short texts for a query: BM25, with a minimum word overlap below which a text is not relevant."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Returns the words of a text, in lower case."""
    return WORD.findall(text.lower())


def overlap(left: str, right: str) -> float:
    """Returns the share of words that two texts have in common: 1 for equal sets, 0 for disjoint ones."""
    ours, other = set(words(left)), set(words(right))
    return len(ours & other) / len(ours | other) if ours and other else 0.0


@cache
def _library() -> Any:
    """Returns bm25s, told that there is no JAX: for a thing not asked of it, JAX would take three quarters of a GPU."""
    modules: dict[str, Any] = sys.modules
    there = modules.get("jax")
    modules["jax"] = None
    try:
        return importlib.import_module("bm25s")
    finally:
        if there is None:
            del modules["jax"]
        else:
            modules["jax"] = there


class Index:
    """An index of texts, which can be asked which of them a query is about."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._engine = _library().BM25()
        tokens = [words(text) or [""] for text in texts]
        if tokens:
            self._engine.index(tokens, show_progress=False)

    def scores(self, query: str) -> list[float]:
        """Returns each text's BM25 score, 0 for no word in common."""
        asked = words(query)
        if not self.texts or not asked:
            return [0.0] * len(self.texts)
        return [float(score) for score in self._engine.get_scores(asked)]

    def best(self, query: str, top: int) -> list[str]:
        """Returns the texts with the highest scores above 0; of equal ones, the first."""
        scores = self.scores(query)
        order = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
        return [self.texts[at] for at in order[:top] if scores[at] > 0]


@lru_cache(maxsize=64)
def index(texts: tuple[str, ...]) -> Index:
    """Returns an index of texts, made once."""
    return Index(texts)
