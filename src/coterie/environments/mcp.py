"""MCP servers as tools of a role: what a server offers, and a session with it that an episode can play again.

    shop = Session(scene, "python shop.py")          # or "https://…/mcp"
    schemas = await shop.tools()                     # as chat templates take them
    seen = await shop.call("price", {"item": "mug"}) # an Observation, whatever went wrong

Servers keep state, and episodes branch. So every call carries all earlier calls of its session. A worker that has this
session open makes only the last call; any other worker starts a session and makes all calls. The answers of a server
must therefore depend only on the calls of the session. A server that changes the outside world cannot be used. If a
call ends its server or times out, the role sees an error, and its next call starts a new session.

A server gets PATH, HOME and similar environment variables, but no others of this process. Pass others with `env KEY=…
python shop.py`.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from coterie.environments.tools import Observation
from coterie.errors import CallError, ConfigError, Unavailable
from coterie.kernel.calls import InThread
from coterie.kernel.mistakes import said
from coterie.kernel.once import Once
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON, Scene

OPEN = 32
"""Sessions that a worker keeps open; the one that was used longest ago ends first."""
LONGEST = 4000
"""Characters of an answer that a role is shown."""
BEGIN_S = 60.0
"""Seconds that a server may take to begin."""
CALL_S = 20.0
"""Seconds that a call may take."""
DIES = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
"""Has a command killed when what began it ends, a worker that was itself killed included; Linux can."""


class Session:
    """An episode's session with one server. Args: server: a command, or the URL of one that speaks Streamable HTTP."""

    def __init__(self, scene: Scene, server: str) -> None:
        self._scene, self._server = scene, server
        self._calls: list[JSON] = []

    async def tools(self) -> list[JSON]:
        """Returns every tool's name, description and parameters."""
        try:
            found: Any = await self._scene.call(listed, self._server)
        except CallError as error:  # of no role's making
            raise Unavailable("mcp", f"{self._server}: {one_line(error.message)}") from error
        return found

    async def call(self, name: str, arguments: JSON) -> Observation:
        """Calls a tool and returns what the role sees of it, errors included."""
        calls: list[JSON] = [*self._calls, [name, arguments]]
        try:
            found: Any = await self._scene.call(called, self._server, calls)
        except CallError as error:  # of what a role wrote: too deep, or so that a worker ended by it
            found = {"text": one_line(error.message), "ok": False, "ended": error.kind in ("timeout", "crash")}
        self._calls = [] if found["ended"] else calls
        return Observation(found["text"], found["ok"])


def words_of(server: str) -> list[str]:
    """Returns the words of a command; none for a URL, or for what cannot be read as a command."""
    try:
        return [] if _is_url(server) else shlex.split(server)
    except ValueError:
        return []


def whole_command(server: str) -> str:
    """Returns a command with absolute paths of its files, which are then found from everywhere."""
    words = words_of(server)
    found = [str(Path(word).resolve()) if at and Path(word).is_file() else word for at, word in enumerate(words)]
    return server if found == words else shlex.join(found)


def check_server(server: str, where: str) -> None:
    """Raises ConfigError if there is no such server, or the library is missing. where: the setting that names it."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError("mcp is not installed: pip install 'coterie[mcp]'")
    try:
        command = [] if _is_url(server) else shlex.split(server)
    except ValueError as error:
        raise ConfigError(f"{where} = '{server}': {error}") from error
    if not _is_url(server) and (not command or shutil.which(command[0]) is None):
        raise ConfigError(f"{where} = '{server}': there is no such command; name one, or a URL")
    stack = ExitStack()
    with tempfile.TemporaryFile("w+") as log:
        try:
            offered = _Open(server, stack, log).tools()
        except Exception as error:
            log.seek(0)
            why = next((one_line(line) for line in reversed(log.readlines()) if line.strip()), _first(error))
            raise ConfigError(f"{where} = '{server}' does not answer as a server of MCP: {why}") from error
        finally:
            _end(stack)
    if not offered:
        raise ConfigError(f"{where} = '{server}' offers no tools")


@InThread
def listed(server: str) -> JSON:
    """Returns the tools that a server offers, asked once in a process. Raises: Unavailable: it does not answer."""
    return _offered(server)


@Once
def _offered(server: str) -> JSON:
    stack = ExitStack()
    try:
        return _Open(server, stack).tools()
    except Exception as error:
        raise Unavailable("mcp", f"{server}: {_first(error)}") from error
    finally:
        _end(stack)


def called(server: str, calls: Sequence[Sequence[JSON]]) -> JSON:
    """Returns the answer to the last of a session's calls, as `{text, ok, ended}`; runs in a worker.

    Raises:
        Unavailable: the server does not answer.
    """
    *before, (name, arguments) = calls
    return _asked(server, before, lambda opened: opened.call(str(name), arguments), then=calls)


class _Open:
    """A session that is open. log: what a command says beside its answers; None: nobody reads it."""

    def __init__(self, server: str, stack: ExitStack, log: IO[str] | None = None) -> None:
        mcp: Any = importlib.import_module("mcp")
        portal: Any = stack.enter_context(importlib.import_module("anyio.from_thread").start_blocking_portal())
        place: Any = server
        if not _is_url(server):
            command, *rest = [*([sys.executable, "-c", DIES] if sys.platform == "linux" else []), *shlex.split(server)]
            asked = mcp.StdioServerParameters(command=command, args=rest)
            logging.getLogger("mcp").setLevel(logging.CRITICAL)  # of every line that is no answer it would tell
            log = log or stack.enter_context(closing(Path(os.devnull).open("w")))  # noqa: SIM115
            place = importlib.import_module("mcp.client.stdio").stdio_client(asked, errlog=log)
        client = mcp.Client(place, read_timeout_seconds=BEGIN_S)
        self._client: Any = stack.enter_context(portal.wrap_async_context_manager(client))
        self._portal, self._error = portal, mcp.MCPError

    def tools(self) -> list[JSON]:
        """Returns the schemas of the tools that the server offers."""
        found, page = list[JSON](), self._portal.call(self._client.list_tools)
        while True:
            for tool in page.tools:
                told = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
                found.append({"type": "function", "function": told})
            if not page.next_cursor:
                return found
            page = self._portal.call(partial(self._client.list_tools, cursor=page.next_cursor))

    def call(self, name: str, arguments: JSON) -> JSON:
        """Calls a tool and returns the texts of its answer, as `{text, ok, ended}`."""
        try:
            given = self._portal.call(self._client.call_tool, name, arguments, CALL_S)
        except self._error as error:
            return {"text": one_line(str(error)), "ok": False, "ended": True}
        parts = [getattr(part, "text", None) or f"[{part.type}]" for part in given.content]
        text = "\n".join(parts)
        return {
            "text": text if len(text) <= LONGEST else f"{text[:LONGEST]} …",
            "ok": not given.is_error,
            "ended": False,
        }


_OPEN: list[tuple[str, str, _Open, ExitStack]] = []
"""Open sessions of this worker: server, calls that were made, session and what closes it; used latest, last."""


def _asked(server: str, before: Sequence[Any], ask: Callable[[_Open], JSON], then: Sequence[Any]) -> JSON:
    """Returns the answer to a request in a session in which some calls were made before. then: those with this one."""
    held = next((one for one in _OPEN if one[:2] == (server, _key(before))), None)
    if held:
        _OPEN.remove(held)
    stack = ExitStack()
    try:
        opened, stack = held[2:] if held else _begun(server, before)
        answer = ask(opened)
    except Exception as error:
        _end(stack)
        raise Unavailable("mcp", f"{server}: {_first(error)}") from error
    if answer["ended"]:
        _end(stack)
        return answer
    _OPEN.append((server, _key(then), opened, stack))
    while len(_OPEN) > OPEN:
        _end(_OPEN.pop(0)[3])
    return answer


def _end(stack: ExitStack) -> None:
    """Ends a session; one whose server has gone has nothing left to say."""
    with suppress(Exception):
        stack.close()


def _begun(server: str, before: Sequence[Any]) -> tuple[_Open, ExitStack]:
    """Returns a new session, in which the calls have been made."""
    stack = ExitStack()
    try:
        opened = _Open(server, stack)
        for name, arguments in before:
            opened.call(name, arguments)
    except BaseException:
        _end(stack)
        raise
    return opened, stack


@atexit.register
def _close() -> None:
    while _OPEN:
        _end(_OPEN.pop()[3])


def _key(calls: Sequence[Any]) -> str:
    return json.dumps(calls, sort_keys=True)


def _is_url(server: str) -> bool:
    return server.startswith(("http://", "https://"))


def _first(error: BaseException) -> str:
    """Returns the first of several errors at once, as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return said(error)
