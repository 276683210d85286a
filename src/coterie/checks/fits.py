"""Checks whether a real model can play an environment: its chat template (also without a system role) and its context.

    for finding in fits(MyEnv(), "Qwen/Qwen3-0.6B"): print(finding)

Every prompt of the episodes that `check` plays is rendered with the model's tokenizer. Only the config and the
tokenizer of the model are needed, not its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

from coterie.checks.conformance import Finding, Patience, questions
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment, Task
from coterie.kernel.episode import LoggedPrompt, text_of
from coterie.kernel.scene import Reply, role_of
from coterie.models.load import context_of
from coterie.models.rendering import Renderer
from coterie.models.shapes import read


def fits(environment: Environment, model: str, *, tasks: int, max_tokens: int, watch: Patience) -> Iterator[Finding]:
    """Yields findings about the prompts that an environment asks, for one model.

    Args:
        model: a folder, a starter, or an id of the hub.
        max_tokens: of a reply where the environment does not say.

    Raises:
        ConfigError: the model's config or tokenizer cannot be read.
    """
    config, tokenizer = read(model, "--model")
    context = context_of(config.get_text_config())
    if tokenizer is None:
        raise ConfigError(f"--model {model}: its tokenizer is not here; fetch it first: hf download {model}")
    asked = list(_asked(environment, tasks, max_tokens, watch))
    yield _rendered(asked, tokenizer, model)
    yield _short(asked, tokenizer, model, context)


Seen = tuple[str, LoggedPrompt, int]
"""A speaker that was asked, its prompt, and the maximum number of tokens of its reply."""


def _asked(environment: Environment, tasks: int, max_tokens: int, watch: Patience) -> Iterator[Seen]:
    """Yields prompts to roles that do as is demonstrated, and to roles that say nonsense to the last token they may."""
    longest = max_tokens

    def nonsense(role: str, task: Task, prompt: LoggedPrompt, rng: Random) -> Reply:
        return Reply(role, " ".join(["la"] * longest))

    def expert(role: str, task: Task, prompt: LoggedPrompt, rng: Random) -> Reply:
        return Reply(role, environment.demonstrate(role, task, text_of(prompt), rng))

    for hand in (expert, nonsense):
        with suppress(NotImplementedError):
            for event in questions(environment, hand, tasks, watch):
                longest = event.max_tokens or max_tokens
                yield from ((speaker, prompt, longest) for speaker, prompt in event.prompts.items())


def _rendered(asked: list[Seen], tokenizer: object, model: str) -> Finding:
    claim = f"the chat template of {model} takes every prompt"
    own, folded = Renderer(tokenizer, "model"), Renderer(tokenizer, "model", system="fold")
    try:
        for speaker, prompt, _ in asked:
            own(prompt, role_of(speaker))
    except ConfigError as error:
        try:
            for speaker, prompt, _ in asked:
                folded(prompt, role_of(speaker))
        except ConfigError:
            return Finding(claim, ok=False, detail=str(error))
        return Finding(claim, ok=True, detail="with policies.NAME.system = 'fold': it has no system role")
    return Finding(claim, ok=True)


def _short(asked: list[Seen], tokenizer: object, model: str, context: int) -> Finding:
    claim = f"prompts and replies fit {model}'s {context} tokens"
    render = Renderer(tokenizer, "model", system="fold")
    try:
        lengths = [(len(render(prompt, role_of(speaker))), speaker, most) for speaker, prompt, most in asked]
    except ConfigError:
        return Finding(claim, ok=False, detail="its chat template does not take them")
    length, speaker, most = max(lengths, key=lambda one: one[0] + one[2])
    detail = f"the longest asks '{role_of(speaker)}': {length} tokens and {most} for its reply"
    return Finding(claim, length + most <= context, detail)
