"""The embedded engine: samples from Hugging Face models in this process. Settings can be read without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from coterie.errors import Unavailable
from coterie.kernel.engine import Engine, EngineConfig, Request
from coterie.kernel.episode import Sample

if TYPE_CHECKING:
    from coterie.learning.policy import Policy


class TransformersConfig(EngineConfig):
    """Settings of the embedded engine."""

    exact: ClassVar[bool] = True
    found: ClassVar[tuple[str, ...]] = ("memory_gib",)

    memory_gib: float | None = Field(default=None, gt=0, le=1e6)
    """Memory limit in GiB for prompts, caches and logits of the replies that are decoded at once. Other requests of a
    wave wait. none: half of the memory that will be free during training, rounded down to a power of two. The run's
    config records the value."""


class TransformersEngine(Engine):
    """Hugging Face models in this process, sampled by the weights that the learner trains."""

    options: ClassVar[type[EngineConfig]] = TransformersConfig

    def __init__(self, policies: Mapping[str, Policy], config: EngineConfig | None = None) -> None:
        super().__init__(policies, config)
        from coterie.engines.decoding import Decoder, budget_gib, left_bytes
        from coterie.models.lean import Bases
        from coterie.models.threads import Threads

        bases: Bases = {}
        self._decoders = {name: Decoder(policy, bases, self._go_on) for name, policy in policies.items()}
        self._threads = Threads([decoder.net for decoder in self._decoders.values()])
        assert isinstance(self.config, TransformersConfig)
        if self.config.memory_gib is None and policies:
            self.config = self.config.model_copy(update={"memory_gib": budget_gib(left_bytes(list(policies.values())))})

    def _go_on(self) -> None:
        """Raises Unavailable if nobody waits for the replies any more."""
        if self.closing:
            raise Unavailable("engine", "it is being closed")

    async def sync(self, policy: str, version: int) -> None:
        """Takes over a policy's weights as they are now, under a new version number."""
        await super().sync(policy, version)
        self._decoders[policy].refresh()

    async def close(self) -> None:
        """Restores the process's number of threads."""
        self._threads.restore()
        await super().close()

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """Answers one wave for one policy. Equal prompts are prefilled once, whoever asked."""
        from coterie.engines.decoding import DecodingRow

        assert isinstance(self.config, TransformersConfig)
        assert self.config.memory_gib is not None
        policy, memory = requests[0].policy, int(self.config.memory_gib * 2**30)
        decoder, version = self._decoders[policy], self.versions[policy]
        rows = [DecodingRow(request, seed, Random(seed)) for request in requests for seed in request.seeds]
        with self._threads.settled():
            for batch in decoder.batches(rows, memory):
                decoder.fill(batch)
        samples = iter([decoder.sample(row, version) for row in rows])
        return [tuple(next(samples) for _ in request.seeds) for request in requests]
