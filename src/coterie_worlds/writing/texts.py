"""Texts of published data sets, and one's own: see `published/data.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from coterie.environments.published.data import Benchmark, Reader, Unfit, load, told_by
from coterie.environments.published.sources import Row
from coterie.errors import ConfigError
from coterie_worlds.writing.facts import WritingSource
from coterie_worlds.writing.prose import Prose, learned

TLDR = "hub:trl-lib/tldr#default"
ARXIV = "hub:OpenMLRL/arXiv_abstract#default"
BENCHMARKS = {
    "tldr": Benchmark(f"{TLDR}/train", f"{TLDR}/test", f"{TLDR}/validation"),
    "arxiv": Benchmark(f"{ARXIV}/train", f"{ARXIV}/val"),
}
FEWEST_TEXTS = 20
"""Minimum number of texts to train on: what prose is like is learned from them."""


@dataclass(frozen=True)
class Texts(Reader[WritingSource]):
    """A reader of rows as texts to write about."""

    benchmarks: ClassVar[Mapping[str, Benchmark]] = BENCHMARKS

    def format_of(self, row: Row, where: str) -> Callable[[Row], WritingSource]:
        """Returns a function that reads rows with these columns. Raises ConfigError: it knows no such columns."""
        return told_by(FORMATS, row, where)

    def words(self, item: WritingSource) -> tuple[str, str]:
        """Returns no name and the text, which tells two items apart."""
        return "", item.text

    def content(self, item: WritingSource) -> list[Any]:
        """Returns the text, all that anything measured depends on."""
        return [item.text]


def _read(column: str) -> Callable[[Row], WritingSource]:
    def build(row: Row) -> WritingSource:
        text = row[column]
        if isinstance(text, list):  # arXiv's abstracts, as their page describes them
            text = " ".join(map(str, text))
        if not isinstance(text, str) or not text.strip():
            raise Unfit(f"its {column} is empty, or no text")
        text = text.strip()
        return WritingSource(str(row.get("article_id") or row.get("id") or ""), "train", query=text, text=text)

    return build


FORMATS: dict[tuple[str, ...], tuple[str, Callable[[Row], WritingSource]]] = {
    ("prompt", "completion"): ("TLDR", _read("prompt")),
    ("abstract_text",): ("arXiv", _read("abstract_text")),
    ("text",): ("one's own", _read("text")),
}


@lru_cache(maxsize=4)
def background(data: str) -> Prose:
    """Returns the measure of prose, learned from the texts that are trained on, or, of none, tested on.

    Raises:
        ConfigError: there are too few.
    """
    splits = load(data, Texts()).splits
    texts = [item.text for item in splits["train"] or splits["test"]]
    if len(texts) < FEWEST_TEXTS:
        raise ConfigError(f"environment.data: {len(texts)} texts are too few to learn from; {FEWEST_TEXTS} are needed")
    return learned(texts)
