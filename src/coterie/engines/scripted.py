"""The scripted engine: replies come from a function. For tests, debugging and demonstrations.

Tokens are bytes, 256 ends a reply; every token has log-probability 0. Nothing is learned from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import LoggedPrompt, Sample, text_of

Script = Callable[[str, str, Random], str]
"""A function that returns a reply: (role, prompt as text, chance) -> reply."""
END = 256


class ScriptedEngine(Engine):
    """An engine that answers by a script, the same for every policy."""

    def __init__(self, script: Script) -> None:
        super().__init__({})
        self.script = script
        self.waves: list[list[Request]] = []
        """All waves of requests that it was sent, in order."""

    @classmethod
    def table(cls, replies: Mapping[str, str]) -> ScriptedEngine:
        """Returns an engine that always gives a role the same reply."""
        return cls(lambda role, prompt, rng: replies[role])

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """Returns the prompt's UTF-8 bytes as its tokens."""
        return tuple(text_of(prompt).encode())

    def context(self, policy: str) -> int:
        """Returns a context without limit, in effect."""
        return 1 << 30

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """Returns the script's replies, cut at stop strings and `max_tokens` bytes."""
        self.waves.append(list(requests))
        return [tuple(self._sample(request, seed) for seed in request.seeds) for request in requests]

    def _sample(self, request: Request, seed: int) -> Sample:
        text = self.script(request.role, text_of(request.prompt), Random(seed))
        for stop in request.stop:
            text = text.split(stop)[0]
        ids = text.encode()
        cut = len(ids) >= request.max_tokens
        ids = ids[: request.max_tokens]
        completion = tuple(ids) if cut else (*ids, END)
        return Sample(
            role=request.role,
            policy=request.policy,
            version=self.versions.get(request.policy, 0),
            prompt_ids=request.prompt_ids,
            completion_ids=completion,
            logprobs=(0.0,) * len(completion),
            finish="length" if cut else "stop",
            text=ids.decode(errors="replace"),
            seed=seed,
            temperature=request.temperature,
        )
