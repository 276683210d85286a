"""A listening socket, opened before anything heavy is loaded, and the server on it."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from coterie.errors import ConfigError

GRACE_S = 5
"""Seconds that answers under way have once the server is told to stop."""
HEADERS_S = 20
"""Seconds that a client has for a request's headers."""


class Patient(H11Protocol):
    """A connection that is closed where a request's headers do not come in time."""

    _waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Goes on waiting, for the headers of this request or of the next."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting for headers."""
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._unwatch()
        elif self._waits is None:
            self._waits = self.loop.call_later(HEADERS_S, self.transport.close)

    def _unwatch(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None


def serving(app: Starlette) -> uvicorn.Config:
    """Returns the settings of every server here: it does not name itself, and waits for nobody for ever."""
    return uvicorn.Config(
        app, http=Patient, log_level="critical", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that listens. anywhere: others than this machine reach it."""

    socket: socket.socket
    anywhere: bool

    @property
    def port(self) -> int:
        """Number of the port."""
        return self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Address of the server, without a last slash."""
        host = self.socket.getsockname()[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def serve(self, app: Starlette) -> None:
        """Serves an application until it is stopped."""
        uvicorn.Server(serving(app)).run(sockets=[self.socket])


def listen(host: str, port: int) -> Listening:
    """Opens a socket that listens at a host and port.

    Raises:
        ConfigError: it cannot be opened.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        taken = socket.create_server((host, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConfigError(f"--host {host} --port {port}: {why}; choose another, or --port 0 for any") from error
    try:
        alone = ipaddress.ip_address(taken.getsockname()[0]).is_loopback
    except ValueError:
        alone = False
    return Listening(taken, not alone)
