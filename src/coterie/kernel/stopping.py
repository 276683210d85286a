"""Where stop strings end a reply."""

from __future__ import annotations

from collections.abc import Sequence


def cut(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """A text up to the stop string that comes first, and whether there is one."""
    places = [place for string in stop if (place := text.find(string)) >= 0]
    return (text[: min(places)], True) if places else (text, False)
