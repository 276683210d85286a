"""Renders chat templates, in the process that `templates` starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template


def rendered(template: str, messages: list[dict[str, str]], more: dict[str, Any]) -> Iterator[str]:
    """Yields a conversation as a template writes it."""
    texts, _ = render_jinja_template([messages], chat_template=template, **more)
    yield texts[0]
