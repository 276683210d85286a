"""The chat protocol of OpenAI's clients: a request is read or refused, an answer is written whole or as a stream.

What clients really send, and what they make of an answer, is not what a schema says: contents come as text, as parts or
as null, limits under two names, and a stream without a reason to finish is a success to them. What would change the
meaning of an answer and is not done here is refused by name; what only hints is let be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.errors import EnvError
from coterie.kernel.episode import LoggedPrompt, logged

LARGEST = 10_000_000
"""Bytes of a request."""
FINISH = {"stop": "stop", "string": "stop", "length": "length", "context": "length"}
"""How a sample ended, in OpenAI's words."""
UNDONE = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "tools": (None, []),
    "functions": (None, []),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "n": (None, 1),
}
"""Keys that would change what an answer means, and their values that change nothing."""


class Refused(Exception):
    """A request that is not answered. status: of HTTP. code: a short name. param: the key it is about."""

    def __init__(self, message: str, *, status: int = 400, code: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        """As clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code or None}}


@dataclass(frozen=True, slots=True)
class Chat:
    """What a client asks. temperature, top_p, max_tokens, seed: None where it does not say."""

    model: str
    prompt: LoggedPrompt
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, and what it cost in tokens."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int

    @property
    def usage(self) -> dict[str, int]:
        """As clients read it."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


def read(body: bytes) -> Chat:
    """A request's body.

    Raises:
        Refused: it is none, or asks for what is not done.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused("the body is no JSON", code="invalid_json") from error
    if not isinstance(asked, dict):
        raise Refused("the body is no JSON object", code="invalid_json")
    for key, harmless in UNDONE.items():
        if asked.get(key) not in harmless:
            raise Refused(f"'{key}' is not supported; leave it away", code="unsupported", param=key)
    limits = [_whole(asked, key, least=1) for key in ("max_completion_tokens", "max_tokens")]
    stream = _of(asked, "stream", bool, False)
    options = _of(asked, "stream_options", dict, {})
    return Chat(
        model=_of(asked, "model", str, ""),
        prompt=_prompt(asked.get("messages")),
        temperature=_number(asked, "temperature", 0.0, 2.0),
        top_p=_number(asked, "top_p", 0.0, 1.0),
        max_tokens=min((limit for limit in limits if limit is not None), default=None),
        seed=_whole(asked, "seed", least=-(1 << 63)),
        stop=_stops(asked.get("stop")),
        stream=stream,
        usage=options.get("include_usage") is True,
    )


def _prompt(messages: object) -> LoggedPrompt:
    """The messages as a log keeps them."""
    if not isinstance(messages, list) or not messages:
        raise Refused("'messages' is a list of at least one message", param="messages")
    plain: list[dict[str, str]] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if not isinstance(message, dict):
            raise Refused(f"{where} is no object", param=where)
        if message.get("tool_calls") or message.get("role") in ("tool", "function"):
            raise Refused(f"{where}: calls of tools are not supported", code="unsupported", param=where)
        role = "system" if message.get("role") == "developer" else message.get("role")
        plain.append({"role": str(role), "content": _content(message.get("content"), where)})
    try:
        return logged(plain)
    except EnvError as error:
        raise Refused(str(error), param="messages") from error


def _content(content: object, where: str) -> str:
    """A message's text: text, parts of text, or nothing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else [content]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused(f"{where}.content: text only", code="unsupported", param=f"{where}.content")
    return "".join(part["text"] for part in parts)


def _stops(stop: object) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops) or len(stops) > 16:
        raise Refused("'stop' is a text, or up to 16 of them, none empty", param="stop")
    return tuple(stops)


def _of(asked: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = default if asked.get(key) is None else asked[key]
    if not isinstance(value, kind):
        raise Refused(f"'{key}' is {value!r:.40}, no {kind.__name__}", param=key)
    return value


def _whole(asked: Mapping[str, Any], key: str, least: int) -> int | None:
    value = asked.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 63):
        raise Refused(f"'{key}' is {value!r:.40}, no whole number from {least}", param=key)
    return value


def _number(asked: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    value = asked.get(key)
    if value is not None and (
        not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most
    ):
        raise Refused(f"'{key}' is {value!r:.40}, no number from {least:g} to {most:g}", param=key)
    return None if value is None else float(value)


def whole(chat: Chat, said: Said, number: str) -> dict[str, Any]:
    """An answer in one piece."""
    message = {"role": "assistant", "content": said.text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish}
    return {**_head(chat, number, "chat.completion"), "choices": [choice], "usage": said.usage}


def pieces(chat: Chat, said: Said, number: str) -> Iterator[str]:
    """An answer as events of a stream: the role, the text, the reason to finish, what it cost, the end."""
    head = _head(chat, number, "chat.completion.chunk")
    for delta, finish in (
        ({"role": "assistant", "content": ""}, None),
        ({"content": said.text}, None),
        ({}, said.finish),
    ):
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    if chat.usage:
        yield _event({**head, "choices": [], "usage": said.usage})
    yield "data: [DONE]\n\n"


def failed(refused: Refused) -> str:
    """An error in a stream that has begun."""
    return _event(refused.body())


def _head(chat: Chat, number: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": int(time.time()), "model": chat.model}


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
