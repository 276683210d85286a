"""Published questions and your own: the benchmarks, and how a row becomes a question; see `published/data.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from coterie.environments.published.data import Benchmark, Reader, Unfit, told_by
from coterie.environments.published.sources import Row
from coterie_worlds.maths.equal import LONGEST, check, normal, number, unequal_golds
from coterie_worlds.maths.procedural import MathsProblem

GSM8K = "hub:openai/gsm8k#main"
POLARIS = "hub:POLARIS-Project/Polaris-Dataset-53K#default/train"
BENCHMARKS = {
    "gsm8k": Benchmark(f"{GSM8K}/train", f"{GSM8K}/test"),
    "math500": Benchmark(POLARIS, "hub:HuggingFaceH4/MATH-500#default/test"),
    "aime24": Benchmark(POLARIS, "hub:HuggingFaceH4/aime_2024#default/train"),
    "aime25": Benchmark(POLARIS, "hub:math-ai/aime25#default/test"),
    "olympiad": Benchmark(POLARIS, "hub:Hothan/OlympiadBench#OE_TO_maths_en_COMP/train"),
}
"""Benchmarks by name: those that are tests alone train on Polaris, as in AT-GRPO. Names of splits say little."""


@dataclass(frozen=True)
class Questions(Reader[MathsProblem]):
    """A reader of rows as questions with an answer."""

    benchmarks: ClassVar[Mapping[str, Benchmark]] = BENCHMARKS

    def format_of(self, row: Row, where: str) -> Callable[[Row], MathsProblem]:
        """Returns a function that reads rows with these columns. Raises ConfigError: it knows no such columns."""
        return told_by(FORMATS, row, where)

    def words(self, item: MathsProblem) -> tuple[str, str]:
        """Returns no name and the question, which tells two items apart."""
        return "", item.query

    def content(self, item: MathsProblem) -> list[Any]:
        """Returns the question and its answer."""
        return [item.query, item.answer]

    def failing(self, items: Sequence[MathsProblem]) -> tuple[str, Mapping[int, str]]:
        """Returns items whose answer is not equal to itself, by place, with a reason: nobody could be right."""
        if any(number(normal(item.answer)) is None for item in items):
            check()
        golds = unequal_golds(item.answer for item in items)
        return "", dict.fromkeys(golds, "with an answer that cannot be compared")


def _gsm8k(row: Row) -> MathsProblem:
    return _question(row, "question", _written(row["answer"]).rpartition("#### ")[2])


def _olympiad(row: Row) -> MathsProblem:
    answers = row["final_answer"]
    if not isinstance(answers, list) or not answers:
        raise Unfit("it has no final_answer")
    if row.get("is_multiple_answer"):
        return _question(row, "question", ", ".join(map(_written, answers)))
    return _question(row, "question", _written(answers[0]))


def _written(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if type(answer) is int or (type(answer) is float and isfinite(answer)):
        return str(answer)
    raise Unfit("its answer is no text and no number")


def _question(row: Row, column: str, answer: str) -> MathsProblem:
    text = row[column]
    if not isinstance(text, str) or not text.strip():
        raise Unfit(f"its {column} is empty, or no text")
    answer = re.sub(r"\$([^$]*)\$", r"\1", answer.strip())
    if not answer or len(answer) > LONGEST:
        raise Unfit(f"an answer has 1 to {LONGEST} characters")
    name = next((str(row[key]) for key in ("unique_id", "id", "problem_idx") if row.get(key) is not None), "")
    return MathsProblem(name, "train", query=text.strip(), answer=answer)


FORMATS: dict[tuple[str, ...], tuple[str, Callable[[Row], MathsProblem]]] = {
    ("question", "final_answer"): ("OlympiadBench", _olympiad),
    ("question", "answer"): ("GSM8K, or one's own", _gsm8k),
    ("problem", "answer"): ("MATH-500, AIME, Polaris", lambda row: _question(row, "problem", _written(row["answer"]))),
}
"""Formats by columns; GSM8K's answers end with `#### 18`, one's own are the answer alone."""
