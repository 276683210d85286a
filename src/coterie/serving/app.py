"""The HTTP endpoint: access, requests and answers. By default it is reachable only from this machine, with a key."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from coterie.kernel.safe import one_line
from coterie.protocol.chat import Chat, RequestRefused, failed, pieces, read, whole
from coterie.protocol.http import body_of, check_host, check_key, refusal, unless_left
from coterie.serving.desk import Desk

LARGEST = 2_000_000
"""Maximum number of bytes of a request, which is parsed where all are answered: 10 MB took a second."""


class Endpoint:
    """The HTTP endpoint, which answers requests.

    Args:
        key: what a client must send as `Authorization: Bearer KEY`.
        anywhere: requests may come under any host's name.
        tell: is told of what goes wrong here, a line each.
    """

    def __init__(
        self, desk: Desk, key: str, *, anywhere: bool = False, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.desk = desk
        self._key = key
        self._anywhere = anywhere
        self._tell = tell

    def app(self) -> Starlette:
        """Returns the application that a server runs."""
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/models/{name}", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/{path:path}", self.elsewhere, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        ]
        return Starlette(routes=routes, exception_handlers={RequestRefused: self._refused, Exception: self._bug})

    async def models(self, request: Request) -> Response:
        """Returns all models, or one."""
        self._check(request)
        name = request.path_params.get("name")
        if name is None:
            return JSONResponse({"object": "list", "data": [_card(each) for each in self.desk.models]})
        return JSONResponse(_card(self.desk.known(name)))

    async def chat(self, request: Request) -> Response:
        """Returns one answer, whole or as a stream."""
        self._check(request)
        asked, number = read(await body_of(request, LARGEST)), secrets.token_hex(8)
        self.desk.known(asked.model)
        if not asked.stream:
            return JSONResponse(whole(asked, await unless_left(request, self.desk.answer(asked)), number))
        events = self._stream(asked, number)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def elsewhere(self, request: Request) -> Response:
        """Refuses a request for any other path, and says where things are."""
        self._check(request)
        path = one_line(request.url.path)
        raise RequestRefused(
            f"nothing is at {path:.80}: POST /v1/chat/completions, GET /v1/models", status=404, code="path"
        )

    def _check(self, request: Request) -> None:
        """Raises Refused if a request has the wrong key, or comes under another host's name."""
        if not self._anywhere:
            check_host(request)
        check_key(request, self._key, "the one that `coterie serve` printed")

    async def _stream(self, asked: Chat, number: str) -> AsyncIterator[str]:
        try:
            for piece in pieces(asked, await self.desk.answer(asked), number):
                yield piece
        except RequestRefused as refused:
            yield failed(refused)
        except Exception as error:
            yield failed(self._told(error))

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestRefused)
        return refusal(error)

    async def _bug(self, request: Request, error: Exception) -> Response:
        return await self._refused(request, self._told(error))

    def _told(self, error: Exception) -> RequestRefused:
        """Tells of a bug here, and returns the refusal that the client is sent."""
        if not isinstance(error, ClientDisconnect):
            self._tell(one_line(f"{type(error).__name__}: {error}"))
        return RequestRefused("it failed here; its log says why", status=500, code="bug")


def _card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "coterie"}
