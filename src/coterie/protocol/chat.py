"""The chat protocol of OpenAI's clients: a request is read or refused, an answer is written whole or as a stream.

Real clients do not follow the schema exactly: contents come as text, as parts or as null, limits have two names, and
clients treat a stream without a finish reason as a success. An unsupported field that would change the meaning of an
answer is refused by name. A field that is only a hint is ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.kernel.episode import SPEAKERS, ChatMessage, LoggedPrompt, clean
from coterie.kernel.scene import JSON
from coterie.protocol.tools import ToolCall, finite

FINISH = {"stop": "stop", "string": "stop", "length": "length", "context": "length"}
"""OpenAI's words for the ways in which a sample ended."""
CHAT_ID = "chatcmpl-"
"""Prefix of the id of an answer."""
UNDONE = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "n": (None, 1),
}
"""Keys of a request that would change what an answer means, and their values that change nothing."""
TOOLS = {
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
}
"""Keys that are refused too where nobody calls tools, and their values that change nothing."""


class RequestRefused(Exception):
    """A request that is not answered. status: of HTTP. code: a short name. param: the key it is about."""

    def __init__(self, message: str, *, status: int = 400, code: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        """Returns the error as clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code or None}}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who speaks, the text, the calls of tools that it makes, and whose call it answers."""

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""


@dataclass(frozen=True, slots=True)
class Chat:
    """A client's request. temperature, top_p, max_tokens, seed: None where it does not say.

    tools: JSON. choice: "auto", "required" or a tool's name. form: a JSON schema of the answer, or None.
    """

    model: str
    turns: tuple[Turn, ...]
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False
    tools: tuple[JSON, ...] = ()
    choice: str = "auto"
    form: JSON = None

    @property
    def prompt(self) -> LoggedPrompt:
        """Messages of the request as a log keeps them, without calls of tools."""
        return tuple(ChatMessage(turn.role, turn.text) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, and what it cost in tokens."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    calls: tuple[ToolCall, ...] = ()

    @property
    def usage(self) -> dict[str, int]:
        """Numbers of tokens, as clients read them."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


def read(body: bytes, *, tools: bool = False) -> Chat:
    """Reads a request's body as a chat.

    Args:
        tools: whether there may be calls of tools.

    Raises:
        Refused: it is none, or asks for what is not done.
    """
    asked = decoded(body)
    for key, harmless in (UNDONE if tools else UNDONE | TOOLS).items():
        if asked.get(key) not in harmless:
            raise RequestRefused(f"'{key}' is not supported; leave it away", code="unsupported", param=key)
    limits = [whole_number(asked, key, least=1) for key in ("max_completion_tokens", "max_tokens")]
    stream = value_of(asked, "stream", bool, False)
    options = value_of(asked, "stream_options", dict, {})
    choice = choice_of(asked.get("tool_choice"))
    return Chat(
        model=value_of(asked, "model", str, ""),
        turns=_turns(asked.get("messages"), tools),
        temperature=number_of(asked, "temperature", 0.0, 2.0),
        top_p=number_of(asked, "top_p", 0.0, 1.0),
        max_tokens=min((limit for limit in limits if limit is not None), default=None),
        seed=whole_number(asked, "seed", least=-(1 << 63)),
        stop=_stops(asked.get("stop")),
        stream=stream,
        usage=options.get("include_usage") is True,
        tools=() if choice == "none" else functions(asked.get("tools")),
        choice=choice,
        form=form_of(asked.get("response_format")),
    )


def decoded(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a request's body. Raises Refused if it is none."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused("the body is no JSON", code="invalid_json") from error
    if not isinstance(asked, dict) or not finite(asked):
        raise RequestRefused("the body is no JSON object", code="invalid_json")
    return asked


def _turns(messages: object, tools: bool) -> tuple[Turn, ...]:
    """Returns the messages of a request as turns."""
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("'messages' is a list of at least one message", param="messages")
    turns: list[Turn] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if not isinstance(message, dict):
            raise RequestRefused(f"{where} is no object", param=where)
        if not tools and (message.get("tool_calls") or message.get("role") in ("tool", "function")):
            raise RequestRefused(f"{where}: calls of tools are not supported", code="unsupported", param=where)
        role = "system" if message.get("role") == "developer" else message.get("role")
        if role not in SPEAKERS:
            raise RequestRefused(f"{where}.role is {role!r:.40}, none of {', '.join(SPEAKERS)}", param=where)
        turns.append(
            Turn(
                str(role),
                clean(content_of(message.get("content"), where)),
                tuple(_called(call, f"{where}.tool_calls") for call in value_of(message, "tool_calls", list, [])),
                value_of(message, "tool_call_id", str, ""),
            )
        )
    return tuple(turns)


def _called(call: Any, where: str) -> ToolCall:
    """Returns the call of a tool that stands in a message."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise RequestRefused(f"{where}: a call of a function is an object with id and function", param=where)
    return ToolCall(
        value_of(call, "id", str, ""),
        value_of(function, "name", str, ""),
        arguments_of(function.get("arguments"), where),
    )


def arguments_of(written: object, where: str) -> JSON:
    """Returns a call's arguments, which clients write as text; what is no JSON stays text."""
    if not isinstance(written, str):
        raise RequestRefused(f"{where}: arguments are a text of JSON", param=where)
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return arguments if finite(arguments) else written


def functions(tools: object) -> tuple[JSON, ...]:
    """Returns the tools that a model may call, which are functions."""
    for tool in tools if isinstance(tools, list) else []:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestRefused("'tools': functions only, each with a name", code="unsupported", param="tools")
    return tuple(value_of({"tools": tools}, "tools", list, []))


def choice_of(choice: object) -> str:
    """Returns the tools that a model must call: none, auto, required, or `function` and the name of one."""
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return f"function {choice['function'].get('name')}"
    if choice not in (None, "none", "auto", "required"):
        raise RequestRefused("'tool_choice' is none, auto, required or a function", param="tool_choice")
    return str(choice or "auto")


def form_of(form: object) -> JSON:
    """Returns the schema that an answer is asked to have; {} for any JSON, None for text."""
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise RequestRefused("'response_format' is of type text, json_object or json_schema", param="response_format")
    schema: Any = form
    return None if kind == "text" else {} if kind == "json_object" else schema.get("json_schema") or {}


def content_of(content: object, where: str) -> str:
    """Returns a message's text: from text, parts of text, or nothing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else [content]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RequestRefused(f"{where}.content: text only", code="unsupported", param=f"{where}.content")
    return "".join(part["text"] for part in parts)


def _stops(stop: object) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops) or len(stops) > 16:
        raise RequestRefused("'stop' is a text, or up to 16 of them, none empty", param="stop")
    return tuple(stops)


def value_of(asked: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    """Returns a key's value, or the default. Raises Refused if it is of another kind."""
    value = default if asked.get(key) is None else asked[key]
    if not isinstance(value, kind):
        raise RequestRefused(f"'{key}' is {value!r:.40}, no {kind.__name__}", param=key)
    return value


def whole_number(asked: Mapping[str, Any], key: str, least: int) -> int | None:
    """Returns a key's whole number, or None. Raises Refused if it is no whole number, or too small."""
    value = asked.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 63):
        raise RequestRefused(f"'{key}' is {value!r:.40}, no whole number from {least}", param=key)
    return value


def number_of(asked: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    """Returns a key's number, or None. Raises Refused if it is no number, or out of bounds."""
    value = asked.get(key)
    if value is not None and (
        not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most
    ):
        raise RequestRefused(f"'{key}' is {value!r:.40}, no number from {least:g} to {most:g}", param=key)
    return None if value is None else float(value)


def whole(chat: Chat, said: Said, number: str) -> dict[str, Any]:
    """Returns an answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.calls:
        message |= {"content": said.text or None, "tool_calls": [_made(call) for call in said.calls]}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish}
    return {**_head(chat, number, "chat.completion"), "choices": [choice], "usage": said.usage}


def pieces(chat: Chat, said: Said, number: str) -> Iterator[str]:
    """Yields an answer as events of a stream: the role, the text, the reason to finish, what it cost, the end."""
    head = _head(chat, number, "chat.completion.chunk")
    for delta, finish in (
        ({"role": "assistant", "content": ""}, None),
        ({"content": said.text}, None),
        *(delta for at, call in enumerate(said.calls) for delta in _deltas(at, call)),
        ({}, said.finish),
    ):
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    if chat.usage:
        yield _event({**head, "choices": [], "usage": said.usage})
    yield "data: [DONE]\n\n"


def _made(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.written}}


def _deltas(at: int, call: ToolCall) -> Iterator[tuple[dict[str, Any], None]]:
    """Yields the call of a tool in a stream: its name, then its arguments."""
    named = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    yield {"tool_calls": [{"index": at, **named}]}, None
    yield {"tool_calls": [{"index": at, "function": {"arguments": call.written}}]}, None


def failed(refused: RequestRefused) -> str:
    """Returns an error as an event of a stream that has begun."""
    return _event(refused.body())


def _head(chat: Chat, number: str, kind: str) -> dict[str, Any]:
    return {"id": f"{CHAT_ID}{number}", "object": kind, "created": int(time.time()), "model": chat.model}


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
