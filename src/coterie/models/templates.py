"""Chat templates: programs in Jinja, which come with a model and may be anybody's.

Jinja's sandbox keeps them from files and from this process's objects, and not from computing or allocating for ever. So
a template that is not one of those that are known is rendered in a process of its own, with limits.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from jinja2 import TemplateError

from coterie.apart import Apart, Refused
from coterie.errors import first_line

KNOWN = frozenset({
    "52d26767b4d4db478fe3d0a09e41b65d2bbf0370c3fa00f0f87a65b4e7c84f7e",  # of the shipped starters
    "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",  # of smollm2
})  # fmt: skip
"""SHA-256 of templates that were reviewed."""
APART = Apart("coterie.models.templated:rendered")
atexit.register(APART.close)


def render(tokenizer: Any, messages: Sequence[Mapping[str, str]], **more: Any) -> str:
    """Returns a conversation as a tokenizer's chat template writes it: what its `apply_chat_template` returns as text.

    Args:
        more: variables of the template, and `add_generation_prompt`.

    Raises:
        TemplateError: it refuses the messages, fails, or takes too much.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:  # of several templates none is the usual one
        raise TemplateError(first_line(error)) from error
    if sha256(template.encode()).hexdigest() in KNOWN:
        return tokenizer.apply_chat_template(messages, tokenize=False, **more)
    try:
        return APART.one(template, messages, tokenizer.special_tokens_map | more)
    except Refused as error:
        raise TemplateError(str(error)) from error
