"""The process that serves a team."""

from __future__ import annotations

from collections.abc import Callable

from coterie.protocol.listening import Listening
from coterie.run.loaded import Loaded
from coterie.serving.app import Endpoint
from coterie.serving.desk import TEAM, Desk


def serve(
    listening: Listening, loaded: Loaded, key: str, *, tell: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Serves a team until it is stopped."""
    loaded.models.engine.open()
    desk = Desk(loaded)
    tell(f"{loaded}: {', '.join(desk.models)}")
    if TEAM not in desk.models:
        tell(f"no model '{TEAM}': its environment cannot be asked in words (it has no asked())")
    if listening.anywhere:
        warn("coterie: everybody who reaches this address can ask, with the key")
    tell(f"export OPENAI_BASE_URL={listening.url}/v1 OPENAI_API_KEY={key}")
    tell("Ctrl-C stops it")
    listening.serve(Endpoint(desk, key, anywhere=listening.anywhere, tell=warn).app())
