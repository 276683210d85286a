"""Commands that start a server: `serve` for a trained team, `view` for runs in a browser."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import RunFolder, Trust, team_of, trusted
from coterie.kernel.watchdog import Watch
from coterie.report.output import say

KEY = "COTERIE_KEY"
"""The environment variable with the key. A command-line option would be visible to other users of the machine."""


def serve(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint. Default: the best by validation.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free port.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Other machines can reach it if it is not local.")
    ] = "127.0.0.1",
    trust: Trust = False,
) -> None:
    """Serve a trained team over an OpenAI-compatible API. Example: coterie serve RUN"""
    from coterie.errors import ConfigError

    try:
        from coterie.protocol.listening import listen
    except ImportError as error:
        raise ConfigError("serving needs starlette and uvicorn: pip install 'coterie[serve]'") from error
    from coterie.run.folder import Run

    trusted(trust)
    Run.open(run).check_trusted()  # before torch is loaded, which takes seconds
    Watch.ends_process = False
    listening = listen(host, port)
    key = os.environ.get(KEY, "") or f"coterie-{secrets.token_urlsafe(24)}"
    from coterie.serving.server import serve as serve_team

    serve_team(listening, team_of(run, step), key, tell=say, warn=lambda text: say(text, err=True))


def view(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN...]", help="Run folders or parents of them. Default: runs/.")
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the pages as static files and exit.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free port.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Other machines can reach it if it is not local.")
    ] = "127.0.0.1",
    trust: Trust = False,
) -> None:
    """Show runs in a browser, live while they train. Example: coterie view"""
    from coterie.errors import ConfigError
    from coterie.view.pages import Site
    from coterie.view.shelf import Shelf

    trusted(trust)
    shelf = Shelf(runs or [Path("runs")])
    if bundle is not None:
        from coterie.view.bundle import write

        count, unread = write(Site(shelf, static=True), bundle)
        for why in unread:
            say(f"coterie: not shown: {why}", err=True)
        say(f"{count} pages; open in a browser: {bundle / 'index.html'}")
        return
    try:
        from coterie.protocol.listening import listen
    except ImportError as error:
        raise ConfigError("viewing needs starlette and uvicorn: pip install 'coterie[serve]'") from error
    from coterie.view.app import Viewer

    Watch.ends_process = False
    listening = listen(host, port)
    key = os.environ.get(KEY, "") or secrets.token_urlsafe(24)
    viewer = Viewer(
        Site(shelf), key, f"coterie-{listening.port}", anywhere=listening.anywhere,
        tell=lambda text: say(text, err=True),
    )  # fmt: skip
    if listening.anywhere:
        say("coterie: anybody who can reach this address and has the key can view runs and play episodes", err=True)
    if not shelf.books():
        say(f"no run is in {', '.join(map(str, runs or ['runs']))} yet; one that begins there will be shown", err=True)
    say(f"open in a browser: {listening.url}/?key={key}")
    say("Ctrl-C stops it")
    with suppress(KeyboardInterrupt):  # raised once more when the server has stopped
        listening.serve(viewer.app())
    sys.stdout.flush()
    os._exit(0)  # an episode that is still being played would be waited for, and there is nothing to save
