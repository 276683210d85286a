"""The base classes that a user subclasses: `Environment` and `Task`.

An environment is an immutable record of settings with one coroutine, `play`. `scene.py` defines what
`play` may use. `checks/conformance.py` tests that an environment keeps the contract of `play`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from coterie.errors import ConfigError
from coterie.kernel.episode import Log
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie.seeds import seed_of

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


class Settings(BaseModel):
    """A frozen record of settings. Unknown keys are errors. The docstring below a field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def inert(self) -> dict[str, str]:
        """Returns fields without effect under the other settings, each with a reason; setting one is an error."""
        return {}

    def content(self) -> str:
        """Returns a text that stands for everything that results depend on, except settings and the files they name.

        A run records a digest of it. An example is the digest of a data set that is downloaded.
        """
        return ""

    @model_validator(mode="after")
    def _can_be_written(self) -> Self:
        """Refuses None for a field with another default: TOML has no null, so the default would be read back."""
        for name, field in type(self).model_fields.items():
            if getattr(self, name) is None and not field.is_required() and field.get_default() is not None:
                raise ValueError(f"{name} = none cannot be written to a run's config; write a value")
        return self


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. Environments subclass it with their own data. Tasks are frozen and hashable.

    Attributes:
        id: the name of the task in logs.
        split: train, validation or test.
        query: the text with which memory looks up notes.
        answer: the gold answer, which memory must never contain.
        kind: the category by which evaluation and memory group tasks, such as a skill.
    """

    id: str
    split: Split
    query: str = ""
    answer: str = ""
    kind: str = ""


def split_of(content: object) -> Split:
    """Returns the split that a task's content belongs to: 80 % train, 10 % validation, 10 % test.

    A task generator draws contents until one falls in the requested split. Splits are then disjoint by content, and
    the train split is unlimited.

    Args:
        content: any object. Its `repr` must differ for different contents and be the same in every process.
    """
    bucket = seed_of("split", content) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


class Environment(Settings):
    """Base class of environments. A subclass sets `roles` and implements `task` and `play`."""

    roles: ClassVar[Sequence[str]]
    """Names of the roles; a property if they depend on settings."""
    team_reward_range: ClassVar[tuple[float, float] | None] = None
    """Bounds of each `team_reward`. `coterie check` tests them if they are set."""
    argument: ClassVar[str] = ""
    """Name of the setting that ARGUMENT sets in `NAME:ARGUMENT`, as in `gateway:my_agent.py:run`."""
    side_by_side: ClassVar[int] = 1000
    """Maximum number of episodes that are evaluated at the same time."""
    starter: ClassVar[str] = ""
    """Default model of the policies. Empty: a config must name a model."""

    def task(self, split: Split, index: int) -> Task:
        """Returns a task by its index. It must be a pure function, so that a run can be resumed exactly."""
        raise NotImplementedError

    def count(self, split: Split) -> int | None:
        """Returns the number of tasks in a split; None: unlimited."""
        return None

    def recommended(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns settings with which its starter learns well, as tables of a config.

        Without a starter, they are for any model. They apply unless a config says otherwise, see
        `config.recommended`; `--dry-run` shows the resulting settings.
        """
        return {}

    def ready(self) -> None:
        """Raises ConfigError if this machine cannot play the environment; called before anything is played."""

    def remarks(self) -> tuple[str, ...]:
        """Returns one-line remarks for the user before a run, for example about data that is left out."""
        return ()

    def tested_on(self, data: str) -> tuple[Self, tuple[str, ...]]:
        """Returns the same environment with other data, all of it as test data, and remarks for the user; optional.

        Raises:
            ConfigError: the environment cannot use other data, or the data cannot be read.
        """
        raise ConfigError(f"{type(self).__name__} plays no data of others")

    def wanted(self) -> str:
        """Returns the kind of policy that the setting `against` requires in the team; "": no requirement."""
        return ""

    def absent(self, split: Split) -> Sequence[str]:
        """Returns the roles that are never asked in a split, such as players whose moves are random there."""
        return ()

    def judges(self) -> Sequence[str]:
        """Returns the roles that grade what others wrote; no policy that is trained may play them."""
        return ()

    @property
    def rivals(self) -> bool:
        """True if the rewards of roles are opposed in training: what one role earns, another loses."""
        return False

    def facing(self, *, chance: bool) -> Self:
        """Returns the same game for evaluation, with other opponents.

        Args:
            chance: True: all players but the first make random moves; False: all players are roles.

        Raises:
            ConfigError: the roles do not play against each other, or the legal moves are not known.
        """
        raise ConfigError(f"{type(self).__name__} is no game of players against each other")

    def isolation(self) -> str:
        """Returns the name of the sandbox for model-written code, if `play` runs such code; otherwise ""."""
        return ""

    async def play(self, task: Any, scene: Scene) -> None:
        """Plays one episode. It may depend only on settings, the task, `scene.rng` and what the scene returns."""
        raise NotImplementedError

    def asked(self, text: str) -> Task:
        """Returns a task for a user's question, for a team that is served as one model; optional.

        The task has no known gold answer, and its id does not matter.

        Raises:
            ValueError: this question is not possible; the one-line message says which questions are.
        """
        raise NotImplementedError(f"{type(self).__name__} has no asked()")

    def answer(self, task: Any, log: Log) -> str:
        """Returns the team's answer to the user: by default the last reply of the episode."""
        return next((reply.text for _, reply in reversed([*log.replies()])), "")

    def note(self, role: str, reply: Reply) -> str:
        """Returns the note that memory may keep: the environment's own description of a reply; "" for none.

        The note is shown in prompts of other tasks. So it must not contain text of a model, a user or a tool, only
        names that the environment knows.
        """
        return ""

    def demonstrate(self, role: str, task: Any, prompt: Prompt, rng: Random) -> str:
        """Returns a demonstration, a reply to imitate; optional, for `coterie sft` and `coterie check`."""
        raise NotImplementedError(f"{type(self).__name__} has no demonstrate()")

    def lessons(self, task: Any, rng: Random) -> Iterator[Lesson]:
        """Yields demonstrations of a train task for `coterie sft`; optional. By default, `demonstrate` makes them.

        Implement it to include states that play with `demonstrate` would not reach.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lessons()")


@dataclass(frozen=True, slots=True)
class Lesson:
    """One demonstration: a prompt of a role and the reply to imitate."""

    role: str
    prompt: str
    reply: str
