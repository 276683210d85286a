"""Renders chat templates, in the process that `templates` starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

ADDED, TIMES = 1 << 18, 4
"""Characters that a template may add to a conversation, and the times that it may write it."""


def rendered(template: str, messages: list[dict[str, str]], more: dict[str, Any]) -> Iterator[str]:
    """Yields a conversation as a template writes it."""
    texts, _ = render_jinja_template([messages], chat_template=template, **more)
    given = sum(len(text) for message in messages for text in message.values())
    if len(texts[0]) > ADDED + TIMES * given:
        raise ValueError(f"it makes {len(texts[0]):,} characters of {given:,}")
    yield texts[0]
