"""A listening socket, opened before anything heavy is loaded, and the server on it."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette

from coterie.errors import ConfigError

GRACE_S = 5
"""Seconds that answers under way have once it is told to stop."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A place that is taken. anywhere: others than this machine reach it."""

    socket: socket.socket
    anywhere: bool

    @property
    def port(self) -> int:
        """Which it is."""
        return self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        """How it is reached, without a last slash."""
        host = self.socket.getsockname()[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def serve(self, app: Starlette) -> None:
        """Serves until it is stopped."""
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[self.socket])


def listen(host: str, port: int) -> Listening:
    """Takes a place to listen at.

    Raises:
        ConfigError: it cannot be had.
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
