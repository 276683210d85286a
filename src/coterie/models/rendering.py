"""Turns messages into token ids. A sampled reply is never tokenized again.

The chat template renders the messages, including its changes of contents. If no reply with ids is in the prompt, the
result equals that of `apply_chat_template`. Two things are inserted as placeholders and replaced after rendering: the
role's own earlier replies, as the sampled token ids, and control tokens in contents, as plain characters. So text from
others cannot close or open a message, call a tool or begin a thought. Control tokens are all that were added to a
vocabulary, flagged special or not. Where a template marks turns by words of plain text, such as [INST], a blank is put
into these in contents.
"""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal

from jinja2 import TemplateError

from coterie.errors import ConfigError, first_line
from coterie.kernel.episode import ChatMessage, LoggedPrompt
from coterie.models.templates import render

Thinking = Literal["keep", "strip"]
System = Literal["own", "fold"]
OPEN, CLOSE = "\ue000", "\ue001"
"""Characters around a mark: private-use ones, which no template contains, and no content after marking."""
MARK = re.compile(f"{OPEN}(\\d+){CLOSE}")
THINK, THOUGHT = "<think>", "</think>"
FORMS = (partial(unicodedata.normalize, "NFC"), partial(unicodedata.normalize, "NFKC"))
"""Normal forms in which a tokenizer may read a text; in some, full-width letters may be a control token."""
CONTROL = re.compile(r"<\|(?=[^|<>\s]{1,60}\|>)")
"""The beginning of a control token as most models write it."""
PLAIN_MARK = re.compile(r"[\[<#|].*\w.*|.*\w.*[\]>|:]")
"""A word that marks a turn where it is no control token, such as [/INST], <|user|> or ASSISTANT:."""
LONGEST_SHAPE = 1000
"""Maximum messages of a conversation that is remembered as one that the template renders whole."""
REMEMBERED = 64 << 20
"""Maximum bytes of texts and their ids that are kept: the samples and branches of a step ask the same again."""


class Renderer:
    """A renderer of prompts for one policy.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        policy: whose replies may be put in by their ids.
        template: variables the chat template takes, such as enable_thinking.
        thinking: keep: a role's earlier replies stay as they were sampled. strip: without what they thought, which
            costs their ids: what is left is tokenized again.
        system: own: a system message is one. fold: it begins the first user's message.
        system_text: a system message before every prompt that has none; None: what the chat template puts there.

    Raises:
        ConfigError: there is no chat template, or it has not one of these variables.
    """

    def __init__(
        self,
        tokenizer: Any,
        policy: str,
        template: Mapping[str, Any] | None = None,
        *,
        thinking: Thinking = "keep",
        system: System = "own",
        system_text: str | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer of policy '{policy}' has no chat template; use an instruct model")
        for name in template or {}:
            if not re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template)):
                raise ConfigError(
                    f"policies.{policy}.template.{name} has no effect: the chat template has no such word"
                )
        self.tokenizer = tokenizer
        self.policy = policy
        self.thinking: Thinking = thinking
        self.system: System = system
        self.system_text = system_text
        self._template = dict(template or {})
        self._shapes: set[tuple[str, ...]] = set()
        self._encode = TokenCache(self._encoded, REMEMBERED)
        self._text = TokenCache(self._of_messages, REMEMBERED)
        added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items()}
        self._controls = {number for number, content in added.items() if len(content) > 1 and content.strip()}
        self._added = {added[number] for number in self._controls}
        normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        self._normalized = (normalizer.normalize_str,) if normalizer is not None else ()

    def __call__(self, prompt: LoggedPrompt, role: str = "") -> tuple[int, ...]:
        """Returns the token ids of a prompt, the generation prompt included.

        Args:
            role: who is asked; its own earlier replies, as assistant messages, go in by their ids.

        Raises:
            ConfigError: the chat template refuses the messages, or leaves one out.
        """
        return self._text(prompt, "") if isinstance(prompt, str) else self._of_messages(prompt, role)

    @cached_property
    def _marks(self) -> frozenset[str]:
        """Words of plain text with which the template marks turns, such as [INST]; not what begins a conversation."""
        roles = ("user", "assistant", "user")
        try:
            text = self._rendered(roles, [f"{OPEN}{number}{CLOSE}" for number in range(len(roles))])
        except ConfigError:
            return frozenset()
        between = _any_of(self._added).sub(" ", " ".join(MARK.split(text)[2:-1:2]))
        return frozenset(word for word in between.split() if PLAIN_MARK.fullmatch(word))

    @cached_property
    def _foreign(self) -> re.Pattern[str]:
        return _any_of(self._added | self._marks)

    @cached_property
    def _foreign_in_example(self) -> re.Pattern[str]:
        return _any_of((self._added | self._marks) - {THINK, THOUGHT})

    def _of_messages(self, prompt: LoggedPrompt, role: str) -> tuple[int, ...]:
        messages = _messages(prompt, self.system, self.system_text)
        self._check_shape(tuple(message.role for message in messages))
        marked: list[tuple[int, ...]] = []
        contents = [self._marked(message, role, marked) for message in messages]
        text = self._rendered([message.role for message in messages], contents)
        ids: list[int] = []
        for place, piece in enumerate(MARK.split(text)):
            ids += marked[int(piece)] if place % 2 else self._encode(piece, False)
        return tuple(ids)

    def _marked(self, message: ChatMessage, role: str, marked: list[tuple[int, ...]]) -> str:
        """Returns a content as the template is given it; the ids of its marks are added to `marked`."""

        def mark(ids: tuple[int, ...]) -> str:
            marked.append(ids)
            return f"{OPEN}{len(marked) - 1}{CLOSE}"

        content, text = message.content, _text(message, role, self.thinking)
        own = "assistant", role, self.policy, text
        if not isinstance(content, str) and (message.role, content.role, content.policy, content.text) == own:
            return mark(content.ids)
        example = message.role == "assistant" and isinstance(content, str)  # its thoughts are left to the template
        foreign = self._foreign_in_example if example else self._foreign

        def spell(found: re.Match[str]) -> str:
            return mark(self._spelled(found[0]))

        text = re.sub(f"[{OPEN}{CLOSE}]", spell, text)
        for read in (str, *FORMS, *self._normalized):
            if foreign.search(read(text)):
                text = foreign.sub(spell, read(text))
        return text

    def _spelled(self, control: str) -> tuple[int, ...]:
        """Returns a control token as the ids of the characters that it is made of; a plain mark with a blank in it."""
        if control in self._marks:
            return self._encode(f"{control[0]} {control[1:]}", True)
        ids = self._encode(control, True)
        if self._controls.isdisjoint(ids):
            return ids
        return tuple(number for sign in control for number in self._encode(sign, True))

    def _encoded(self, text: str, split: bool) -> tuple[int, ...]:
        """Returns the ids of a text. Args: split: special tokens are the characters that they are made of."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=split))

    def _check_shape(self, roles: tuple[str, ...]) -> None:
        """Raises ConfigError: the chat template leaves out a message of such a conversation."""
        if roles in self._shapes:
            return
        marks = [f"{OPEN}{number}{CLOSE}" for number in range(len(roles))]
        if MARK.findall(self._rendered(roles, marks)) != [str(number) for number in range(len(roles))]:
            raise ConfigError(
                f"the chat template of policy '{self.policy}' leaves out a message of {list(roles)}; "
                "use roles that it knows"
            )
        if len(roles) <= LONGEST_SHAPE:
            self._shapes.add(roles)

    def _rendered(self, roles: Sequence[str], contents: Sequence[str]) -> str:
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        try:
            return render(self.tokenizer, messages, add_generation_prompt=True, **self._template)
        except TemplateError as error:
            folds = self.system == "own" and "system" in roles
            raise ConfigError(
                f"the chat template of policy '{self.policy}' refuses messages of {list(roles)}: {first_line(error)}; "
                + (f"set policies.{self.policy}.system='fold', or " if folds else "")
                + "use roles that it knows, in an order that it knows"
            ) from error


class TokenCache:
    """A cache of the ids of texts, bounded in bytes: those that were not asked for the longest go first.

    Args:
        make: returns the ids of a text, and of what else it is called with.
        most: bytes that are kept, about.
    """

    def __init__(self, make: Callable[..., tuple[int, ...]], most: int) -> None:
        self._make, self._most = make, most
        self._kept: OrderedDict[tuple[Any, ...], tuple[int, ...]] = OrderedDict()
        self.size = 0

    def __call__(self, text: str, *more: Any) -> tuple[int, ...]:
        """Returns the ids of a text, made now or kept."""
        key = text, *more
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        ids = self._kept[key] = self._make(text, *more)
        self.size += _bytes(text, ids)
        while self.size > self._most:
            oldest, theirs = self._kept.popitem(last=False)
            self.size -= _bytes(oldest[0], theirs)
        return ids


def _bytes(text: str, ids: tuple[int, ...]) -> int:
    """Returns the bytes of a text and its ids, about."""
    return 256 + 4 * len(text) + 36 * len(ids)


def as_text(
    prompt: LoggedPrompt, role: str, thinking: Thinking, system: System, system_text: str | None = None
) -> list[dict[str, str]]:
    """Returns a prompt as messages of text, for servers that render them themselves; see Renderer.

    Which tokens control such a server's model is not known. Text of the form `<|name|>`, as most have it, is broken by
    a blank, except in the role's own earlier replies.
    """
    return [
        {"role": message.role, "content": text if _own(message, role) else CONTROL.sub("< |", text)}
        for message in _messages(prompt, system, system_text)
        for text in (_text(message, role, thinking),)
    ]


def _messages(prompt: LoggedPrompt, system: System, system_text: str | None) -> Sequence[ChatMessage]:
    """Returns a prompt's messages; where it is so set, a system message at the start begins the user's after it."""
    messages = (ChatMessage("user", prompt),) if isinstance(prompt, str) else prompt
    if system_text is not None and (not messages or messages[0].role != "system"):
        messages = (ChatMessage("system", system_text), *messages)
    if system == "own" or len(messages) < 2 or (messages[0].role, messages[1].role) != ("system", "user"):
        return messages
    first, second, *others = messages
    both = "\n\n".join(
        message.content if isinstance(message.content, str) else message.content.text for message in (first, second)
    )
    return [ChatMessage("user", both), *others]


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Returns a pattern of some texts, the longest first; of none, it matches nothing."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)")


def _text(message: ChatMessage, role: str, thinking: Thinking) -> str:
    """Returns a message's text; of the role's own earlier words without what it thought, where that is left out."""
    content = message.content
    if isinstance(content, str):
        return content
    if thinking == "keep" or not _own(message, role) or THOUGHT not in content.text:
        return content.text
    return content.text.rpartition(THOUGHT)[2].lstrip("\n")


def _own(message: ChatMessage, role: str) -> bool:
    """Returns True if a message is an earlier reply of the role that is asked."""
    return not isinstance(message.content, str) and (message.role, message.content.role) == ("assistant", role)
