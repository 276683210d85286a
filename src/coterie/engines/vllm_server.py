"""vLLM behind HTTP: a server that the run starts, protected by a key, or one that is already running.

It takes and returns the same data as vLLM in this process: token ids in, token ids and log-probabilities out. Adapters
and weights are sent as files, so the server must run on a machine that can read these files.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from coterie.engines.remote_config import HERE
from coterie.errors import ConfigError, EngineError, Unavailable, first_line

T = TypeVar("T")
START_S = 600.0
"""Seconds that a server that is started here may take to answer."""
ANSWER_S = 3600.0
"""Seconds that one reply may take."""
END_S = 30.0
"""Seconds that a server may take to end."""
SERVE = (
    "import ctypes, os, runpy, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM); "  # it ends with whoever started it
    "os.getppid() == int(sys.argv.pop(1)) or sys.exit(1); "
    "runpy.run_module('vllm.entrypoints.openai.api_server', run_name='__main__', alter_sys=True)"
)
WANTED = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
}
"""Variables that a server needs to take over weights. Whoever reaches it may then do so: nobody else should."""
SILENT = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Environment variables that keep vLLM from reporting that it runs."""


class VLLMServer:
    """One vLLM behind HTTP. `started` makes it here; `joined` asks one that runs."""

    def __init__(
        self, url: str, key: str = "", process: subprocess.Popen[bytes] | None = None, door: Path | None = None
    ) -> None:
        """Makes a client. process: a server started here. door: a socket's file that it listens at, in its folder."""
        self._process = process
        self._door = door
        self._loaded: dict[str, str] = {}
        self._gone = False
        self._rests = False
        here = urlsplit(url).hostname in HERE  # a proxy is for what is elsewhere
        limits = _http().Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
        self._http: Any = _http().AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=ANSWER_S, limits=limits,
            trust_env=not here, transport=_http().AsyncHTTPTransport(uds=str(door), limits=limits) if door else None,
        )  # fmt: skip
        self._name = ""

    @classmethod
    async def started(cls, arguments: Mapping[str, Any]) -> VLLMServer:
        """Starts a server with these arguments, and returns it once it answers.

        Args:
            arguments: as vLLM's engine takes them.

        Raises:
            EngineError: it ends, or does not answer.
        """
        folder = Path(tempfile.mkdtemp(prefix="coterie-vllm-"))
        door = folder / "door"
        with (folder / "words").open("wb") as words:
            process = subprocess.Popen(  # noqa: ASYNC220 it returns at once
                [sys.executable, "-c", SERVE, str(os.getpid()), "--uds", str(door), "--disable-uvicorn-access-log",
                 *_options(arguments)],
                env=os.environ | WANTED | SILENT, stdout=words, stderr=words, start_new_session=True,
            )  # fmt: skip
        server = cls("http://localhost", process=process, door=door)
        end = time.monotonic() + START_S
        try:
            while process.poll() is None and time.monotonic() < end:
                with contextlib.suppress(Unavailable):
                    await server.check()
                    return server
                await asyncio.sleep(0.5)
            said = server.last_words()
        except BaseException:
            await server.close()
            raise
        await server.close()
        raise EngineError(f"vLLM's server did not start: {said or f'it has not answered within {START_S:g} s'}")

    @classmethod
    async def joined(cls, url: str, variable: str) -> VLLMServer:
        """Returns a server that runs already.

        Args:
            variable: of the environment, which holds its key; "": it wants none.

        Raises:
            ConfigError: nothing answers there, the key is wrong, or it cannot take over weights.
        """
        server = cls(url.removesuffix("/v1"), os.environ.get(variable, ""))
        try:
            await server.check()
            if (await server._http.get("/is_paused")).status_code == 404:
                raise ConfigError(
                    f"engine.url = '{url}': this server cannot take over weights; start it on loopback with "
                    f"{' '.join(f'{name}={value}' for name, value in WANTED.items())} and --worker-extension-cls "
                    "coterie.engines.vllm_worker.Weights"
                )
        except Unavailable as fault:
            await server.close()
            raise ConfigError(f"engine.url = '{url}': no vLLM answers there ({fault}); start it, or mend it") from fault
        except ConfigError:
            await server.close()
            raise
        return server

    async def check(self) -> None:
        """Asks for the model's name. Raises Unavailable: no answer. ConfigError: the server wants another key."""
        self._name = await self._told("GET", "/v1/models", None, lambda answer: answer["data"][0]["id"])

    @property
    def ended(self) -> bool:
        """True if the server has gone: a process started here has ended, another does not answer any more."""
        return self._gone if self._process is None else self._process.poll() is not None

    async def ask(
        self, prompt: Sequence[int], sampling: Mapping[str, Any], adapter: str | None
    ) -> tuple[list[int], list[float], str]:
        """Returns ids, log-probabilities and why the reply ended. Raises Unavailable: the server has gone."""
        biases = {str(token): bias for token, bias in (sampling.get("logit_bias") or {}).items()}
        body = {**sampling, "logit_bias": biases or None, "prompt": list(prompt), "return_token_ids": True}

        def read(answer: Any) -> tuple[list[int], list[float], str]:
            (choice,) = answer["choices"]
            return choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]

        return await self._told("POST", "/v1/completions", {"model": adapter or self._name, **body}, read)

    async def adapter(self, name: str, number: int, folder: Path) -> str:
        """Loads an adapter under its folder's name, and unloads its last but one. Returns the name to ask it by."""
        await self._said("POST", "/v1/load_lora_adapter", {"lora_name": folder.name, "lora_path": str(folder)})
        if before := self._loaded.get(f"{name}/{number}"):
            await self._said("POST", "/v1/unload_lora_adapter", {"lora_name": before})
        self._loaded[f"{name}/{number}"] = folder.name
        return folder.name

    async def take(self, file: Path) -> None:
        """Has the server take over whole weights from a file. Raises Unavailable: it could not."""
        await self._said("POST", "/collective_rpc", {"method": "take_weights", "args": [str(file)]})
        if not await self._told("POST", "/reset_prefix_cache", None, lambda answer: answer["success"]):
            raise Unavailable("engine", "its prefix cache could not be cleared")

    async def rest(self) -> None:
        """Moves the server's weights to the processor's memory, and forgets its cache."""
        await self._said("POST", "/sleep?level=1")
        self._rests = True

    async def wake(self) -> None:
        """Gives a server that rests its memory back: before weights are sent, or they would be written nowhere."""
        if self._rests:
            await self._said("POST", "/wake_up")
            self._rests = False

    async def close(self) -> None:
        """Closes the connections, and ends the server if it was started here."""
        await self._http.aclose()
        if self._process is not None:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._door is not None:
            shutil.rmtree(self._door.parent, ignore_errors=True)

    def last_words(self) -> str:
        """Returns the last line in which the server speaks of an error."""
        assert self._door is not None
        lines = self._door.with_name("words").read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line]
        return first_line(ValueError((errors or lines or [""])[-1].strip()))

    async def _told(self, method: str, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T]) -> T:
        """Sends a request and returns what is read of the answer. Raises Unavailable: it is no answer."""
        answer = await self._said(method, path, body)
        try:
            return read(answer.json())
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise Unavailable("engine", f"vLLM's server gave no answer: {answer.text!r:.80}") from error

    async def _said(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Sends a request and returns the answer. Raises Unavailable: none, or an error. ConfigError: a wrong key."""
        try:
            answer = await self._http.request(method, path, json=body)
        except _http().HTTPError as error:
            self._gone = True
            raise Unavailable(
                "engine", f"vLLM's server does not answer: {first_line(error) or type(error).__name__}"
            ) from error
        self._gone = False
        if answer.status_code in (401, 403):
            raise ConfigError(
                "vLLM's server wants another key: name the variable of the environment that holds it in "
                "engine.key_variable"
            )
        if answer.status_code >= 400:
            said = first_line(ValueError(answer.text))
            raise Unavailable("engine", f"vLLM's server answers {method} {path} with {answer.status_code}: {said}")
        return answer


def _options(arguments: Mapping[str, Any]) -> list[str]:
    """Returns arguments of vLLM's engine as options of its server."""
    options: list[str] = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            options.append(flag)
        elif value is False:
            options.append(f"--no-{name.replace('_', '-')}")
        else:
            options += [flag, str(value)]
    return options


def _http() -> Any:
    try:
        return importlib.import_module("httpx2")
    except ImportError as error:
        raise ConfigError("vLLM as a server needs httpx2; install it: pip install 'coterie[remote]'") from error
