"""Episodes of an evaluation as other tools read them: a format is one file, and a line of `FORMATS`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import ConfigError
from coterie.kernel.environment import Environment
from coterie.kernel.episode import Answered, Asked, Log, LoggedPrompt
from coterie.kernel.scene import Reply, role_of
from coterie.run.evaluate import Evaluation

FORMATS = {
    ".json": "coterie.report.logs.inspect",
    ".jsonl": "coterie.report.logs.verifiers",
}
"""Modules whose `write(path, held)` writes a file, by the file's ending."""


@dataclass(frozen=True, slots=True)
class Held:
    """An evaluation that is written to a file, and its origin.

    name: the environment's. run: the folder, as text. step: the checkpoint that played. roles: the policy of each.
    """

    name: str
    run: str
    step: int
    environment: Environment
    roles: Mapping[str, str]
    evaluation: Evaluation

    def episodes(self) -> Iterator[tuple[int, int, Log | None]]:
        """Yields the place of each episode's task, its number there, and its log; None: it was lost to a fault."""
        of_a_task = len(self.evaluation.logs) // self.evaluation.tasks
        for at, log in enumerate(self.evaluation.logs):
            yield *divmod(at, of_a_task), log


def writer(path: Path) -> Callable[[Path, Held], None]:
    """Returns the function that writes a file; this is asked before anything is played.

    Raises:
        ConfigError: its format is unknown, or it is there already.
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a log ends in .json, for Inspect, or in .jsonl, for verifiers")
    if path.exists():
        raise ConfigError(f"{path} is there already; name another file")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")
    return importlib.import_module(FORMATS[path.suffix]).write


def said(log: Log) -> Iterator[tuple[str, LoggedPrompt, Reply]]:
    """Yields each answer of an episode: its role, the prompt and the reply, in order."""
    asked: Asked | None = None
    for event in log.events:
        if isinstance(event, Asked):
            asked = event
        elif isinstance(event, Answered) and asked is not None:
            for speaker, reply in event.replies.items():
                yield role_of(speaker), asked.prompts[speaker], reply


def messages(prompt: LoggedPrompt) -> list[tuple[str, str]]:
    """Returns a prompt's messages: speaker and text."""
    if isinstance(prompt, str):
        return [("user", prompt)]
    return [(each.role, each.content.text if isinstance(each.content, Reply) else each.content) for each in prompt]
