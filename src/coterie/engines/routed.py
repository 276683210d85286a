"""An engine that combines several engines: each serves some of the policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from coterie.errors import Unavailable
from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import LoggedPrompt, Sample


class RoutedEngine(Engine):
    """An engine that takes every request to the engine of its policy.

    Args:
        engines: the first one's config and title are the whole's.
    """

    def __init__(self, *engines: Engine) -> None:
        self.engines = engines
        self._of: Mapping[str, Engine] = {policy: engine for engine in engines for policy in engine.policies}
        super().__init__(
            {name: policy for engine in engines for name, policy in engine.policies.items()}, engines[0].config
        )

    @property
    def title(self) -> str:
        """Title of the first engine."""
        return self.engines[0].title

    @property
    def tried_again(self) -> Counter[str]:
        """Number of retries of all engines, by fault."""
        return sum((engine.tried_again for engine in self.engines), Counter[str]())

    @property
    def closing(self) -> bool:
        """True if the engines are being shut down."""
        return self.engines[0].closing

    @closing.setter
    def closing(self, closing: bool) -> None:
        for engine in self.engines:
            engine.closing = closing

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """Renders a prompt as the policy's engine does."""
        return self._of[policy].render(policy, role, prompt)

    def context(self, policy: str) -> int:
        """Returns the context length that the policy's engine has."""
        return self._of[policy].context(policy)

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Counts tokens as the policy's engine does."""
        return self._of[request.policy].tokens(request, samples)

    async def start(self) -> None:
        """Starts all engines."""
        for engine in self.engines:
            await engine.start()

    async def generate(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """Has the policy's engine answer."""
        return await self._of[requests[0].policy].generate(requests)

    async def sync(self, policy: str, version: int) -> None:
        """Has the policy's engine take over its weights."""
        await self._of[policy].sync(policy, version)

    async def rest(self) -> None:
        """Lets all engines rest."""
        for engine in self.engines:
            await engine.rest()

    async def close(self) -> None:
        """Closes all engines."""
        for engine in self.engines:
            await engine.close()
