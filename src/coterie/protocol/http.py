"""HTTP handling for all endpoints: access checks, request bodies and error responses."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from coterie.protocol.chat import RequestRefused

T = TypeVar("T")

LARGEST = 10_000_000
"""Maximum number of bytes of a request."""
BODY_S = 60
"""Seconds within which a request's body must have come."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine: a page under another name that leads here is refused."""


def check_host(request: Request) -> None:
    """Raises Refused if a request comes under another name than this machine's."""
    host = request.headers.get("host", "")
    if host.rsplit(":", 1)[0] not in LOOPBACK:
        raise RequestRefused(f"this serves {' and '.join(LOOPBACK[:2])}, not '{host:.80}'", status=403, code="host")


def check_key(request: Request, key: str, which: str) -> None:
    """Raises Refused if a request does not have the key. which: where a client finds it."""
    sent = request.headers.get("authorization", "").encode("utf-8", "replace")
    if not hmac.compare_digest(sent, f"Bearer {key}".encode()):
        raise RequestRefused(f"the key is wrong: send {which}", status=401, code="key")


async def body_of(request: Request, largest: int = LARGEST) -> bytes:
    """Returns a request's body. Raises Refused if it has more bytes than `largest`, or does not come."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    raise RequestRefused(f"the request has more than {largest:,} bytes", status=413, code="too_large")
    except TimeoutError as error:
        raise RequestRefused(f"the request has not come whole in {BODY_S} seconds", status=408, code="slow") from error
    return bytes(body)


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of work, which is cancelled if its client leaves. Call it when the body has been read.

    Raises:
        ClientDisconnect: the client has left.
    """

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(left())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()


def refusal(refused: RequestRefused) -> Response:
    """Returns a refusal as clients read it, with a header for or against a retry, which they make by themselves."""
    headers = {"x-should-retry": "true" if refused.status == 503 else "false"}
    if refused.status == 500:
        headers["connection"] = "close"  # a server closes it after a bug: a client's next request would be lost in it
    return JSONResponse(refused.body(), refused.status, headers=headers)
