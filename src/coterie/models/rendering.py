"""Messages become token ids. A sampled reply is never tokenized again.

The chat template is rendered once for each shape of conversation, with placeholders where the
contents go; what stands between them is scaffold, encoded with special tokens. Contents are
encoded without: text of others cannot close a message or open one. A role's own earlier words
are put in as the ids it sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from coterie.errors import ConfigError
from coterie.kernel.episode import ChatMessage, LoggedPrompt

PLACEHOLDER = "\ue000{}\ue001"
"""Stands for a message's content; private-use characters, which no template contains."""


class Renderer:
    """Renders prompts for one policy.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        policy: whose replies may be put in by their ids.
        template: variables the chat template takes, such as enable_thinking.

    Raises:
        ConfigError: there is no chat template.
    """

    def __init__(self, tokenizer: Any, policy: str, template: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer of policy '{policy}' has no chat template; use an instruct model")
        self.tokenizer = tokenizer
        self.policy = policy
        self._template = dict(template or {})
        self._scaffolds: dict[tuple[str, ...], list[list[int]]] = {}
        self._encode = lru_cache(maxsize=65_536)(self._encode_content)

    def __call__(self, prompt: LoggedPrompt, role: str = "") -> tuple[int, ...]:
        """Token ids of a prompt, the generation prompt included.

        Args:
            role: who is asked; its own earlier replies, as assistant messages, go in by their ids.

        Raises:
            ConfigError: the chat template leaves a message out.
        """
        messages = (ChatMessage("user", prompt),) if isinstance(prompt, str) else prompt
        first, *others = self._scaffold(tuple(message.role for message in messages))
        ids = list(first)
        for message, scaffold in zip(messages, others, strict=True):
            ids += self._content(message, role)
            ids += scaffold
        return tuple(ids)

    def _content(self, message: ChatMessage, role: str) -> tuple[int, ...]:
        content = message.content
        if isinstance(content, str):
            return self._encode(content)
        own = content.role == role and content.policy == self.policy and message.role == "assistant"
        return content.ids if own else self._encode(content.text)

    def _encode_content(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def _scaffold(self, roles: tuple[str, ...]) -> list[list[int]]:
        """The ids before, between and after the contents."""
        if roles not in self._scaffolds:
            marks = [PLACEHOLDER.format(number) for number in range(len(roles))]
            messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
            rest = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self._template
            )
            pieces: list[str] = []
            for mark in marks:
                before, separator, rest = rest.partition(mark)
                if not separator:
                    raise ConfigError(
                        f"the chat template of policy '{self.policy}' leaves out a message of {list(roles)}; "
                        "use roles that it knows"
                    )
                pieces.append(before)
            self._scaffolds[roles] = [
                self.tokenizer.encode(piece, add_special_tokens=False) for piece in (*pieces, rest)
            ]
        return self._scaffolds[roles]
