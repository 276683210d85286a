"""What answers are equal."""

from __future__ import annotations


def boxed(text: str) -> str:
    return ""


def alike(a: str, b: str) -> bool:
    return a == b


def same(gold: str, answer: str) -> bool:
    return gold == answer
