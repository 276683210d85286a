"""What a user writes: an `Environment`, and the `Task` it plays.

An environment is a frozen record of settings with one coroutine, `play`. What `play` may
use is in `scene.py`; how to prove that it keeps its contract is in `checks/conformance.py`.
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
STARTERS = {
    "starter": "plan_path",
    "starter-code": "code",
    "starter-assistants": "assistants",
    "starter-assistants-solo": "assistants_solo",
    "starter-tally": "tally",
    "starter-desks": "desks",
    "starter-sokoban": "sokoban",
    "starter-sudoku": "sudoku",
    "starter-maths": "maths",
    "starter-writing": "writing",
}
"""The small models that are shipped: their names, and their folders in `starters/`."""


class Settings(BaseModel):
    """A frozen record of settings: unknown keys are errors, docstrings under fields are their help."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def inert(self) -> dict[str, str]:
        """Fields that have no effect next to the others, each with why: setting one is an error."""
        return {}

    def content(self) -> str:
        """What the same numbers rest on beside settings and the files that they name: text that differs with it."""
        return ""

    @model_validator(mode="after")
    def _can_be_written(self) -> Self:
        """A file has no word for none: read back, such a setting would be its default."""
        for name, field in type(self).model_fields.items():
            if getattr(self, name) is None and not field.is_required() and field.get_default() is not None:
                raise ValueError(f"{name} = none cannot be written to a run's config; write a value")
        return self


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. Environments subclass it with their own data, frozen and hashable.

    id: names it in logs. split: train, validation or test. query: what memory looks up. answer: the gold
    answer, which memory must never hold. kind: what evaluation and memory tell apart, such as a skill.
    """

    id: str
    split: Split
    query: str = ""
    answer: str = ""
    kind: str = ""


def split_of(content: object) -> Split:
    """The split a task's content belongs to: 80 % train, 10 % validation, 10 % test.

    A generator draws until the content falls in the split that was asked for, so splits are
    disjoint by content and train is unlimited.

    Args:
        content: anything whose `repr` tells two contents apart, the same in every process.
    """
    bucket = seed_of("split", content) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


class Environment(Settings):
    """A team's world. Subclass it, name the roles, write `task` and `play`."""

    roles: ClassVar[Sequence[str]]
    """Who speaks; a property where settings decide."""
    team_reward_range: ClassVar[tuple[float, float] | None] = None
    """Bounds of one `team_reward`, checked by `coterie check` where given."""
    argument: ClassVar[str] = ""
    """The setting that `NAME:ARGUMENT` sets, where it is named so: `gateway:my_agent.py:run`."""
    side_by_side: ClassVar[int] = 1000
    """Episodes that are evaluated at once, at most."""
    starter: ClassVar[str] = ""
    """The model that its policies start from unless told otherwise; none: a config has to name one."""

    def task(self, split: Split, index: int) -> Task:
        """The task at a place of a split; pure, so that a run can be resumed exactly."""
        raise NotImplementedError

    def count(self, split: Split) -> int | None:
        """How many tasks a split holds; None: unlimited."""
        return None

    def recommended(self) -> Mapping[str, Mapping[str, Any]]:
        """Settings with which its starter learns well, table by table, as a config would write them.

        Where it has no starter they are of any model. They stand where a config says nothing else, see
        `config.recommended`; `--dry-run` shows what holds.
        """
        return {}

    def ready(self) -> None:
        """Raises ConfigError where this machine lacks what playing needs; asked before anything is played."""

    def remarks(self) -> tuple[str, ...]:
        """What a person should know before a run, such as data that is passed over; a line each."""
        return ()

    def tested_on(self, data: str) -> tuple[Self, tuple[str, ...]]:
        """The same world with other data, all of it to be tested on, and what a person should know of it; optional.

        Raises:
            ConfigError: it plays none, or it cannot be read.
        """
        raise ConfigError(f"{type(self).__name__} plays no data of others")

    def wanted(self) -> str:
        """A kind of policy that one of the team must be for `against` to be what it says; none: any team will do."""
        return ""

    def absent(self, split: Split) -> Sequence[str]:
        """Roles that nobody asks in a split, such as players whose moves chance makes there."""
        return ()

    @property
    def rivals(self) -> bool:
        """Whether what one role earns in training another one loses."""
        return False

    def facing(self, *, chance: bool) -> Self:
        """The same game where it is evaluated with a player at every seat, or with chance at all but the first's.

        Raises:
            ConfigError: its roles do not play against each other, or nobody knows what chance may do.
        """
        raise ConfigError(f"{type(self).__name__} is no game of players against each other")

    def isolation(self) -> str:
        """What keeps model-written code apart, where `play` runs any; else nothing."""
        return ""

    async def play(self, task: Any, scene: Scene) -> None:
        """One episode. Depends on settings, task, `scene.rng` and what the scene returned."""
        raise NotImplementedError

    def asked(self, text: str) -> Task:
        """A problem that a person asks in words, for a team that is served as one model; optional.

        Its gold answer is not known, and its id does not matter.

        Raises:
            ValueError: this cannot be asked, in one line that says what can.
        """
        raise NotImplementedError(f"{type(self).__name__} has no asked()")

    def answer(self, task: Any, log: Log) -> str:
        """What the team says to a person who asked: the last reply, unless an environment knows better."""
        return next((reply.text for _, reply in reversed([*log.replies()])), "")

    def note(self, role: str, reply: Reply) -> str:
        """What memory may keep of a reply: what the role did, in words of the environment's own; "" for nothing.

        Whatever it returns is shown in prompts of other tasks, so it must hold no text of a model, a user or a
        tool: names that are known, not what was written.
        """
        return ""

    def demonstrate(self, role: str, task: Any, prompt: Prompt, rng: Random) -> str:
        """A reply worth imitating; optional, for `coterie sft` and `coterie check`."""
        raise NotImplementedError(f"{type(self).__name__} has no demonstrate()")

    def lessons(self, task: Any, rng: Random) -> Iterator[Lesson]:
        """What `coterie sft` learns from a train task; optional, else it plays with `demonstrate`.

        Write it to show states that the demonstrator's own play would not reach.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lessons()")


@dataclass(frozen=True, slots=True)
class Lesson:
    """One demonstration: a prompt of a role and the reply to imitate."""

    role: str
    prompt: str
    reply: str
