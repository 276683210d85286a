"""A policy: weights under a name, with everything that sampling from them and training them needs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from coterie.kernel.episode import LoggedPrompt
from coterie.learning.optimizer import OptimizerConfig
from coterie.models.load import Model
from coterie.models.rendering import Renderer, System, Thinking

Kind = Literal["full", "lora", "frozen", "past"]


@dataclass(slots=True)
class Policy:
    """A policy, which plays one role or several.

    kind: full: all its weights are its own, and trained; lora: only an adapter is trained, on a base that it may share;
    frozen: nothing is trained; past: nothing is trained, and the weights are an earlier version of another policy.
    template: variables of its chat template.
    thinking, system, system_text: how messages become a prompt, see Renderer. dtype: what its network computes in;
    trained weights are float32.
    """

    name: str
    model: Model
    kind: Kind = "full"
    template: Mapping[str, Any] = field(default_factory=dict[str, Any])
    thinking: Thinking = "keep"
    system_text: str | None = None
    system: System = "own"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    dtype: torch.dtype = torch.float32
    _renderer: Renderer | None = field(default=None, repr=False)

    @property
    def device(self) -> torch.device:
        """Device of the policy's weights."""
        return self.model.device

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the policy's model."""
        return self.model.tokenizer

    @property
    def context(self) -> int:
        """Maximum number of tokens of prompt and reply together."""
        return self.model.context

    @property
    def vocabulary(self) -> int:
        """Token ids below this number can be sampled; the network's ids from here on are padding."""
        return self.model.vocabulary

    def render(self, prompt: LoggedPrompt, role: str) -> tuple[int, ...]:
        """Returns the token ids of a prompt, ready for the role's reply."""
        if self._renderer is None:  # the learner's own copy, because the engine's thread uses the other one
            tokenizer = copy.deepcopy(self.model.tokenizer)
            self._renderer = Renderer(
                tokenizer, self.name, self.template,
                thinking=self.thinking, system=self.system, system_text=self.system_text,
            )  # fmt: skip
        return self._renderer(prompt, role)
