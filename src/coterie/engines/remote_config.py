"""Settings of a server that plays a policy, and the rule by which a key is sent nowhere in the open."""

from __future__ import annotations

from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from coterie.kernel.engine import LONGEST_S
from coterie.kernel.environment import Settings

HERE = ("localhost", "127.0.0.1", "::1")


def check_private(url: str, key_variable: str) -> None:
    """Raises ValueError: a key would be sent where others on the way can read it."""
    parts = urlsplit(url)
    if key_variable and parts.scheme == "http" and parts.hostname not in HERE:
        raise ValueError(f"the key in {key_variable} is sent over https alone, or on this machine; write https://")


class RemoteConfig(Settings):
    """A server that speaks OpenAI's protocol, `[policies.NAME.remote]`."""

    url: str = ""
    """Base URL of the API, without /chat/completions: https://api.openai.com/v1 or http://localhost:8000/v1."""
    key_variable: str = Field(default="", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$")
    """Name of the environment variable with the API key. Empty: no key is needed. The key itself is never saved."""
    concurrency: int = Field(default=16, ge=1)
    """Maximum number of concurrent requests."""
    timeout_s: float = Field(default=120.0, gt=0, le=LONGEST_S)
    """Time-out of one request, in seconds."""
    retries: int = Field(default=5, ge=0)
    """Maximum number of retries after a time-out, a lost connection, or if the server is busy or fails."""
    budget_calls: int | None = Field(default=None, ge=0)
    """Maximum number of requests of a run, including retries. none: no limit."""
    budget_tokens: int | None = Field(default=None, ge=0)
    """Maximum number of prompt and reply tokens of a run. none: no limit."""
    budget_usd: float | None = Field(default=None, ge=0)
    """Maximum cost of a run, in dollars. none: no limit."""
    prompt_usd: float = Field(default=0.0, ge=0)
    """Price of a million prompt tokens, in dollars."""
    completion_usd: float = Field(default=0.0, ge=0)
    """Price of a million reply tokens, in dollars."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Extra fields of every request, such as {reasoning_effort = "low"}."""
    omit: tuple[Literal["max_tokens", "temperature", "top_p", "seed", "stop"], ...] = ()
    """Fields to leave out of every request because the server does not accept them."""

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or url.split() != [url]):
            raise ValueError("write it as https://HOST/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError("a key is given by key_variable, never in the address")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _key_in_private(self) -> Self:
        check_private(self.url, self.key_variable)
        return self

    def inert(self) -> dict[str, str]:
        """Returns the limit of dollars as a setting without effect if nothing has a price."""
        priced = self.prompt_usd or self.completion_usd
        return {} if priced else {"budget_usd": "prompt_usd and completion_usd are 0, so nothing costs anything"}

    @property
    def limits(self) -> dict[str, float]:
        """Limits of the budget that are set, by name."""
        limits = {"calls": self.budget_calls, "tokens": self.budget_tokens, "usd": self.budget_usd}
        return {name: limit for name, limit in limits.items() if limit is not None}


LIMITS = (
    "concurrency",
    "timeout_s",
    "retries",
    "budget_calls",
    "budget_tokens",
    "budget_usd",
    "prompt_usd",
    "completion_usd",
)
"""Settings that change no answer: a run may go on with others."""
