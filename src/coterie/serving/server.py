"""The process that listens."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from coterie.errors import ConfigError
from coterie.run.loaded import Loaded
from coterie.serving.app import Endpoint
from coterie.serving.desk import TEAM, Desk

GRACE_S = 5
"""Seconds that answers under way have once it is told to stop."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A place that is taken, before a team is loaded."""

    socket: socket.socket
    anywhere: bool

    @property
    def url(self) -> str:
        """What clients take as their base URL."""
        host, port = self.socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"

    def serve(self, loaded: Loaded, key: str, *, tell: Callable[[str], None], warn: Callable[[str], None]) -> None:
        """Serves a team until it is stopped."""
        loaded.models.engine.open()
        desk = Desk(loaded)
        config = uvicorn.Config(
            Endpoint(desk, key, anywhere=self.anywhere, tell=warn).app(), log_level="critical", access_log=False,
            lifespan="off", server_header=False, timeout_graceful_shutdown=GRACE_S,
        )  # fmt: skip
        tell(f"{loaded}: {', '.join(desk.models)}")
        if TEAM not in desk.models:
            tell(f"no model '{TEAM}': its environment cannot be asked in words (it has no asked())")
        if self.anywhere:
            warn("coterie: everybody who reaches this address can ask, with the key")
        tell(f"export OPENAI_BASE_URL={self.url} OPENAI_API_KEY={key}")
        tell("Ctrl-C stops it")
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
