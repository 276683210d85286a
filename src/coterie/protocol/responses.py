"""OpenAI's other protocol, responses, as far as it is the same: a request becomes a chat, and its answer items.

Nothing is kept here between requests, so what refers to an earlier one is refused by name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from coterie.kernel.episode import SPEAKERS, clean
from coterie.kernel.scene import JSON
from coterie.protocol.chat import (
    Chat,
    RequestRefused,
    Said,
    Turn,
    arguments_of,
    choice_of,
    content_of,
    decoded,
    form_of,
    functions,
    number_of,
    value_of,
    whole_number,
)
from coterie.protocol.tools import ToolCall

UNDONE = {
    "previous_response_id": (None,),
    "conversation": (None,),
    "background": (None, False),
    "store": (None, False),
    "prompt": (None,),
    "top_logprobs": (None, 0),
}
"""Keys of a request that would change what an answer means, and their values that change nothing."""


def read(body: bytes) -> Chat:
    """Reads a request's body as a chat.

    Raises:
        Refused: it is none, or asks for what is not done.
    """
    asked = decoded(body)
    for key, harmless in UNDONE.items():
        if asked.get(key) not in harmless:
            raise RequestRefused(f"'{key}' is not supported; leave it away", code="unsupported", param=key)
    choice = choice_of(_chosen(asked.get("tool_choice")))
    said = value_of(asked, "instructions", str, "")
    first = [Turn("system", clean(said))] if said else []
    given = asked.get("input")
    items: Any = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return Chat(
        model=value_of(asked, "model", str, ""),
        turns=(*first, *_turns(items)),
        temperature=number_of(asked, "temperature", 0.0, 2.0),
        top_p=number_of(asked, "top_p", 0.0, 1.0),
        max_tokens=whole_number(asked, "max_output_tokens", least=1),
        stream=value_of(asked, "stream", bool, False),
        tools=() if choice == "none" else functions(_as_chat(asked.get("tools"))),
        choice=choice,
        form=form_of(_formed(value_of(asked, "text", dict, {}).get("format"))),
    )


def _chosen(choice: object) -> object:
    return {"function": choice} if isinstance(choice, dict) and choice.get("type") == "function" else choice


def _as_chat(tools: object) -> object:
    """Returns tools, with functions in the form that chats have."""
    return [
        {"type": "function", "function": {key: value for key, value in tool.items() if key not in ("type", "strict")}}
        if isinstance(tool, dict) and tool.get("type") == "function"
        else tool
        for tool in (tools if isinstance(tools, list) else [])
    ]


def _formed(form: object) -> object:
    """Returns the form that an answer is asked to have, as chats write it."""
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {key: value for key, value in form.items() if key != "type"}}


def _turns(items: object) -> Iterator[Turn]:
    """Yields items as messages: what a role said and the calls that it made at once are one."""
    if not isinstance(items, list) or not items:
        raise RequestRefused("'input' is a text, or a list of at least one item", param="input")
    open_turn: Turn | None = None
    for at, item in enumerate(items):
        turn = _turn(item, f"input[{at}]")
        if turn is None:
            continue
        if open_turn and turn.role == "assistant" and turn.calls:
            open_turn = replace(open_turn, calls=open_turn.calls + turn.calls)
            continue
        if open_turn:
            yield open_turn
        open_turn = turn if turn.role == "assistant" else None
        if not open_turn:
            yield turn
    if open_turn:
        yield open_turn


def _turn(item: Any, where: str) -> Turn | None:
    """Returns an item as a message; None for one that says nothing."""
    if not isinstance(item, dict):
        raise RequestRefused(f"{where} is no object", param=where)
    kind = item.get("type", "message")
    if kind == "reasoning":
        return None
    if kind == "function_call":
        name, arguments = value_of(item, "name", str, ""), arguments_of(item.get("arguments"), where)
        return Turn("assistant", "", (ToolCall(value_of(item, "call_id", str, ""), name, arguments),))
    if kind == "function_call_output":
        return Turn("tool", clean(_text(item.get("output"), where)), answers=value_of(item, "call_id", str, ""))
    role = "system" if item.get("role") == "developer" else item.get("role")
    if kind != "message" or role not in SPEAKERS:
        raise RequestRefused(f"{where}: items are messages and calls of functions", code="unsupported", param=where)
    return Turn(str(role), clean(_text(item.get("content"), where)))


def _text(content: object, where: str) -> str:
    """Returns a content's text, whose parts have names of their own in this protocol."""
    parts: Any = content
    if isinstance(content, list):
        names = ("input_text", "output_text", "text")
        parts = [
            {**part, "type": "text"} if isinstance(part, dict) and part.get("type") in names else part
            for part in content
        ]
    return content_of(parts, where)


def whole(chat: Chat, said: Said, number: str) -> dict[str, Any]:
    """Returns an answer in one piece."""
    return _response(chat, number, list(_items(said, number)), said)


def _response(chat: Chat, number: str, items: list[JSON], said: Said | None) -> dict[str, Any]:
    cut = said is not None and said.finish == "length"
    status = "in_progress" if said is None else "incomplete" if cut else "completed"
    usage = said and {
        "input_tokens": said.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": said.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": said.prompt_tokens + said.completion_tokens,
    }
    return {
        "id": f"resp_{number}", "object": "response", "created_at": int(time.time()), "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "error": None, "model": chat.model,
        "output": items, "usage": usage, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": chat.temperature, "top_p": chat.top_p, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def _items(said: Said, number: str) -> Iterator[dict[str, Any]]:
    """Yields the items of an answer: a message, and calls of tools."""
    if said.text or not said.calls:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        yield {
            "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part],
        }  # fmt: skip
    for at, call in enumerate(said.calls):
        yield {
            "type": "function_call", "id": f"fc_{number}_{at}", "call_id": call.id, "name": call.name,
            "arguments": call.written, "status": "completed",
        }  # fmt: skip


def pieces(chat: Chat, said: Said, number: str) -> Iterator[str]:
    """Yields an answer as events of a stream, every item in one piece."""
    for at, (name, event) in enumerate(_events(chat, said, number)):
        yield f"event: {name}\ndata: {json.dumps({'type': name, 'sequence_number': at, **event})}\n\n"


def _events(chat: Chat, said: Said, number: str) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = _response(chat, number, [], None)
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for at, item in enumerate(_items(said, number)):
        place = {"output_index": at, "item_id": item["id"]}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield "response.output_item.added", {"output_index": at, "item": {**item, **empty, "status": "in_progress"}}
        if item["type"] == "message":
            (part,), inside = item["content"], {**place, "content_index": 0}
            yield "response.content_part.added", {**inside, "part": {**part, "text": ""}}
            yield "response.output_text.delta", {**inside, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**inside, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**inside, "part": part}
        else:
            written = item["arguments"]
            yield "response.function_call_arguments.delta", {**place, "delta": written}
            yield "response.function_call_arguments.done", {**place, "arguments": written, "name": item["name"]}
        yield "response.output_item.done", {"output_index": at, "item": item}
    ended = _response(chat, number, list(_items(said, number)), said)
    yield f"response.{ended['status']}", {"response": ended}
