"""What an engine is: it renders prompts and answers requests. Everything else is above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coterie.kernel.episode import LoggedPrompt, Sample


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how often it is answered.

    key: orders a wave, so that its composition never depends on timing. seeds: one a sample.
    temperature: 0 takes the most likely token. top_p: nucleus, 1 for the whole distribution.
    max_tokens: of one completion. stop: strings that end it.
    """

    key: tuple[str, int, str, str]
    policy: str
    role: str
    prompt: LoggedPrompt
    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]


class Engine(Protocol):
    """Answers requests for the policies it holds."""

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """The token ids of a prompt, ready for the role's reply."""
        ...

    def context(self, policy: str) -> int:
        """Tokens that prompt and reply may have together."""
        ...

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """One wave, all for one policy: a sample for each seed of each request.

        Raises: Unavailable: the engine cannot answer just now.
        """
        ...
