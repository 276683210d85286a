"""The verb that serves."""

from __future__ import annotations

import os
import secrets
from typing import Annotated

import typer

from coterie.commands import RunFolder, team_of
from coterie.report.output import say

KEY = "COTERIE_KEY"
"""The variable that a key is read from: on a command line others of the machine would see it."""


def serve(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="Which checkpoint; default: the best by validation.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on; another than this machine's is seen by others.")
    ] = "127.0.0.1",
) -> None:
    """Serve the trained team to OpenAI's clients, on this machine alone: coterie serve RUN"""
    from coterie.errors import ConfigError

    try:
        from coterie.serving.server import listen
    except ImportError as error:
        raise ConfigError("serving needs starlette and uvicorn: pip install 'coterie[serve]'") from error
    from coterie.run.folder import Run

    Run.open(run)  # checked before torch is loaded, which takes seconds
    listening = listen(host, port)
    key = os.environ.get(KEY, "") or f"coterie-{secrets.token_urlsafe(24)}"
    listening.serve(team_of(run, step), key, tell=say, warn=lambda text: say(text, err=True))
