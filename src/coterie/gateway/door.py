"""The HTTP endpoint for agents. It is reachable only from this machine and has a key for every run of an agent.

POST /e/RUN/ROLE/v1/chat/completions    (also without /v1, and /responses)
POST /e/RUN/ROLE/reward                 {"reward": 1.0, "call": "the id of an answer"}
GET  /e/RUN/ROLE/v1/models
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON
from coterie.protocol import chat as chat_form
from coterie.protocol import responses
from coterie.protocol.chat import CHAT_ID, Chat, RequestRefused, Said, decoded, failed
from coterie.protocol.http import body_of, check_host, check_key, refusal
from coterie.protocol.listening import serving
from coterie.protocol.tools import ToolCall

if TYPE_CHECKING:
    from coterie.gateway.agents import AgentRun, Post

KEEPALIVE_S = 5.0
"""Seconds between two signs of life of a stream that waits."""
RETRY = "x-stainless-retry-count"
"""Header by which OpenAI's clients say that they ask again."""
LARGEST_REWARD = 1e6


class Form(Protocol):
    """Form of an answer: written in one piece, or as events of a stream."""

    @staticmethod
    def whole(chat: Chat, said: Said, number: str) -> dict[str, Any]: ...
    @staticmethod
    def pieces(chat: Chat, said: Said, number: str) -> Iterator[str]: ...


class Door:
    """HTTP server that takes agents' questions to their runs, and the answers back."""

    def __init__(self, runs: Mapping[str, AgentRun]) -> None:
        self._runs = runs
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def serve(self) -> None:
        """Serves until the process ends."""
        await uvicorn.Server(serving(self._app())).serve(sockets=[self._socket])

    def _app(self) -> Starlette:
        at = "/e/{run}/{role}"
        routes = [
            *(Route(f"{at}{v1}/chat/completions", self._chat, methods=["POST"]) for v1 in ("/v1", "")),
            *(Route(f"{at}{v1}/responses", self._responses, methods=["POST"]) for v1 in ("/v1", "")),
            *(Route(f"{at}{v1}/models", self._models) for v1 in ("/v1", "")),
            Route(f"{at}/reward", self._reward, methods=["POST"]),
            Route("/{path:path}", self._elsewhere, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        ]
        return Starlette(routes=routes, exception_handlers={RequestRefused: self._refused, Exception: self._bug})

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, partial(chat_form.read, tools=True), chat_form)

    async def _responses(self, request: Request) -> Response:
        return await self._answer(request, responses.read, responses)

    async def _answer(self, request: Request, read: Callable[[bytes], Chat], form: Form) -> Response:
        """Returns the answer to a request in one of the protocols."""
        run, role = self._run(request)
        chat = read(await body_of(request))
        if run.agent.force == "refuse":
            _check_free(chat)
        post = run.post(role, asked(chat), request.headers.get(RETRY, "0") != "0")
        if chat.stream:
            events = self._stream(chat, post, form)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        return JSONResponse(form.whole(chat, await _heard(request, post), _number(post)))

    async def _stream(self, chat: Chat, post: Post, form: Form) -> AsyncIterator[str]:
        with _listening(post):
            while not post.answer.done():
                await asyncio.wait({post.answer}, timeout=KEEPALIVE_S)
                if not post.answer.done():
                    yield ": keepalive\n"
            try:
                events = list(form.pieces(chat, _said(post), _number(post)))
            except RequestRefused as refused:
                events = [failed(refused)]
            for event in events[:-1]:
                yield event
            post.had = True
            yield events[-1]

    async def _models(self, request: Request) -> Response:
        _, role = self._run(request)
        card = {"id": f"coterie-{role}", "object": "model", "created": 0, "owned_by": "coterie"}
        return JSONResponse({"object": "list", "data": [card]})

    async def _reward(self, request: Request) -> Response:
        run, role = self._run(request)
        told = decoded(await body_of(request))
        value, call = told.get("reward"), told.get("call", "")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_REWARD:
            raise RequestRefused(f"'reward' is {value!r:.40}, no number", param="reward")
        answers = {_number(post) for post in run.posts if post.role == role and post.had}
        if not answers:
            raise RequestRefused(f"role '{role}' has not spoken yet; reward what it said", status=409, code="early")
        name = str(call).removeprefix(CHAT_ID).removeprefix("resp_")
        if name and name not in answers:
            raise RequestRefused(f"'{name:.80}' is no answer of role '{role}'; give its id, or none", param="call")
        run.rewards.append([role, float(value), name])
        return JSONResponse({})

    async def _elsewhere(self, request: Request) -> Response:
        path = one_line(request.url.path)
        raise RequestRefused(
            f"nothing is at {path:.80}: a role's base_url is /e/RUN/ROLE/v1; under it are chat/completions and models",
            status=404, code="path",
        )  # fmt: skip

    def _run(self, request: Request) -> tuple[AgentRun, str]:
        """Returns the run and the role of a request. Raises Refused if it comes from nobody who may ask."""
        check_host(request)
        run = self._runs.get(request.path_params["run"])
        if run is None:
            raise RequestRefused("this run of the agent is over, or was never begun here", status=409, code="over")
        check_key(request, run.key, "the api_key of its role")
        role = request.path_params["role"]
        if role not in run.agent.roles:
            raise RequestRefused(
                f"no role '{role:.80}'; there are {', '.join(run.agent.roles)}", status=404, code="role"
            )
        return run, role

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestRefused)
        return refusal(error)

    async def _bug(self, request: Request, error: Exception) -> Response:
        return refusal(RequestRefused(f"the gateway failed: {one_line(repr(error)):.200}", status=500, code="bug"))


def asked(chat: Chat) -> JSON:
    """Returns a question as the log keeps it."""
    turns = [
        [turn.role, turn.text, [[call.id, call.name, call.arguments] for call in turn.calls], turn.answers]
        for turn in chat.turns
    ]
    extras = {"tools": list(chat.tools), "stop": list(chat.stop), "max_tokens": chat.max_tokens, "form": chat.form}
    extras["ignored"] = any(value is not None for value in (chat.temperature, chat.top_p, chat.seed)) or None
    extras["choice"] = chat.choice if chat.tools and chat.choice != "auto" else None
    return {"turns": turns, **{key: value for key, value in extras.items() if value not in (None, [])}}


def _check_free(chat: Chat) -> None:
    """Raises Refused if an answer's form is demanded, which nothing here can promise."""
    demanded = {"tool_choice": bool(chat.tools) and chat.choice != "auto", "response_format": chat.form is not None}
    for key in (key for key, there in demanded.items() if there):
        raise RequestRefused(
            f"'{key}' demands what no sampling here can promise; leave it away, or set environment.force = 'ask', and "
            "the model is told in words",
            code="unsupported", param=key,
        )  # fmt: skip


async def _heard(request: Request, post: Post) -> Said:
    """Returns the answer, which is delivered at once. Raises ClientDisconnect if nobody waits for it any more."""
    with _listening(post):
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({post.answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
            post.had = True
            return _said(post)
        finally:
            gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextmanager
def _listening(post: Post) -> Iterator[None]:
    post.waits += 1
    try:
        yield
    finally:
        post.waits -= 1
        post.left_at = time.monotonic()


def _said(post: Post) -> Said:
    """Returns the answer. Raises Refused if the question was too long, or the run is over."""
    if post.answer.cancelled():
        raise RequestRefused("this run of the agent is over", status=409, code="over")
    answer: Any = post.answer.result()
    if answer["finish"] == "context":
        raise RequestRefused("the messages outgrew the context", code="context_length_exceeded", param="messages")
    calls = tuple(ToolCall(*call) for call in answer["calls"])
    finish = "tool_calls" if calls else answer["finish"]
    return Said(answer["text"], finish, 0, answer["tokens"], calls)


def _number(post: Post) -> str:
    """Returns the id of an answer: its role, and which of the role's answers it is."""
    answer: Any = post.answer.result()
    return answer["id"]
