"""Common mistakes in the code of an environment. Each is reported in one line: what is wrong, where, and what to do.

`check_written` inspects the class before anything is played, `task_of` inspects every task, and `recognised` inspects
exceptions of `play`. It recognises typical mistakes with coroutines and the scene. Any other exception is a bug and
keeps its traceback.
"""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from coterie.errors import ConfigError, CoterieError, EnvError, Unavailable, nearest
from coterie.kernel.environment import SPLITS, Environment, Split, Task
from coterie.kernel.episode import clean
from coterie.kernel.safe import one_line
from coterie.kernel.scene import Reply, Scene
from coterie.kernel.watchdog import Late

AWAITED = ("'coroutine'", "'Reply'")
"""Types that a TypeError names when a question was not awaited, or a reply was taken for its text."""
TEAM = "team"
"""The name of the team in metrics of rewards. No role may have it."""
OURS = (Path(__file__).parents[1], Path(__file__).parents[1].with_name("coterie_worlds"))
"""The folders of Coterie's own packages: the core, and beside it the worlds."""
INSTALLED = (*OURS, *map(Path, {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}))
"""Folders of installed code, which is not the user's."""
METHODS = tuple(name for name in vars(Scene) if not name.startswith("_") and name != "never_awaited")
"""Names of the scene's attributes that `play` may use."""


def check_written(environment: Environment) -> None:
    """Raises EnvError: an environment's roles, `task` or `play` cannot be used as they are written."""
    kind = type(environment)
    where = f"{kind.__name__} in {_file(environment)}"
    _check_roles(environment, where)
    if kind.task is Environment.task or kind.play is Environment.play:
        missing = "task(self, split, index)" if kind.task is Environment.task else "play(self, task, scene)"
        raise EnvError(f"{where} has no method {missing}; write it")
    if not inspect.iscoroutinefunction(kind.play):
        raise EnvError(f"{where}: play is no coroutine; write `async def play(self, task, scene)`, without yield")
    if inspect.iscoroutinefunction(kind.task):
        raise EnvError(f"{where}: task is a coroutine; write `def task(self, split, index)`, without async")
    for method, wanted in ((kind.task, "task(self, split, index)"), (kind.play, "play(self, task, scene)")):
        try:
            inspect.signature(method).bind(environment, None, None)
        except TypeError as error:
            raise EnvError(f"{where}: write {wanted}, with these arguments ({error})") from error


def check_answers(environment: Environment) -> None:
    """Raises EnvError: a method that a person may add to an environment, and that needs no task, raises."""
    with blaming(environment, "environment.wanted()"):
        environment.wanted()
    with blaming(environment, "environment.isolation()"):
        environment.isolation()
    for split in SPLITS:
        with blaming(environment, f"environment.absent({split!r})"):
            environment.absent(split)


def make_ready(environment: Environment) -> None:
    """Raises ConfigError: this machine cannot play it. Raises EnvError: its method `ready` raised anything else."""
    with blaming(environment, "environment.ready()"):
        environment.ready()


def remarks_of(environment: Environment) -> tuple[str, ...]:
    """Returns the environment's remarks before a run. Raises: EnvError: its method `remarks` raised."""
    with blaming(environment, "environment.remarks()"):
        return environment.remarks()


def _check_roles(environment: Environment, where: str) -> None:
    with blaming(environment, f"the roles of {where}"):
        roles = getattr(environment, "roles", None)  # a user may have forgotten to declare them
    advice = 'write roles = ("solver",), a tuple of names'
    if roles is None:
        raise EnvError(f"{where} names no roles; {advice}")
    if isinstance(roles, str):
        raise EnvError(f"{where}: roles = {roles!r} is a string; {advice}")
    if not isinstance(roles, list | tuple):
        raise EnvError(f"{where}: roles = {roles!r} is a {type(roles).__name__}; {advice}")
    if not roles:
        raise EnvError(f"{where}: roles is empty; {advice}")
    for role in roles:
        if not isinstance(role, str) or not role.strip() or not role.isprintable():
            raise EnvError(f"{where}: the role {role!r} is no name; {advice}")
        if "#" in role:
            raise EnvError(f"{where}: the role {role!r} holds a '#', which numbers replies; give it another name")
        if role == TEAM:
            raise EnvError(f"{where}: the role '{TEAM}' is what metrics call the team; give it another name")
    if len(set(roles)) < len(roles):
        raise EnvError(f"{where}: roles = {tuple(roles)!r} names a role twice; each role needs a name of its own")


def check_split(split: str, where: str = "split") -> None:
    """Raises ConfigError: a person named an unknown split. where: the option or setting by which they named it."""
    if split not in SPLITS:
        raise ConfigError(f"{where} {split}: unknown{nearest(split, SPLITS)}; the splits are {', '.join(SPLITS)}")


def count_of(environment: Environment, split: Split) -> int | None:
    """Returns the number of tasks that a split holds; None: no limit.

    Raises:
        EnvError: the environment's `count` raised, or gave no number.
    """
    place = f"environment.count({split!r})"
    with blaming(environment, place):
        count: object = environment.count(split)
    if count is not None and (not isinstance(count, int) or count < 0):
        raise EnvError(f"{place} returned {_short(count)}; return how many tasks there are, or None for no limit")
    return count


def check_index(environment: Environment, split: Split, index: int) -> None:
    """Raises ConfigError if a split has no task of an index."""
    count = environment.count(split)
    if count is not None and index >= count:
        raise ConfigError(f"there is no {split} task {index}: there are {count}, from 0")


def task_of(environment: Environment, split: Split, index: int) -> Task:
    """Returns the task at a place of a split.

    Raises:
        EnvError: the environment's `task` raised, or gave no task, or one that cannot be written to a file.
    """
    place = f"environment.task({split!r}, {index})"
    with blaming(environment, place):
        task: object = environment.task(split, index)
    if not isinstance(task, Task):
        raise EnvError(f"{place} returned {_short(task)}, which is no coterie.Task; return one")
    for name in ("id", "query", "answer", "kind"):
        text: object = getattr(task, name)
        if name in {"id", "kind"} and "\n" in str(text):
            raise EnvError(f"{place} returned a task whose {name} is {_short(text)}; give it one line")
        if not isinstance(text, str) or (name == "id" and not text):
            raise EnvError(f"{place} returned a task whose {name} is {_short(text)}; give it a string")
        if clean(text) != text:
            raise EnvError(
                f"{place} returned a task whose {name} is {_short(text)}: a lone surrogate is no text; "
                "replace it with text.encode('utf-8', 'replace').decode()"
            )
    return task


@contextmanager
def blaming(environment: Environment, what: str) -> Iterator[None]:
    """Turns an exception of a person's code into an EnvError of one line: what was called, what it raised, where."""
    try:
        yield
    except (CoterieError, Unavailable, KeyboardInterrupt, Late):
        raise
    except BaseException as error:  # `exit()` in it, or a library's panic, ends no run
        raise EnvError(
            f"{what} raised {said(error)} ({raised_at(error, _file(environment))}); mend it there"
        ) from error


def said(error: BaseException) -> str:
    """Returns an exception's type and message, in one line."""
    return one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def raised_at(error: BaseException, file: str) -> str:
    """Returns the line of a file in which an exception was raised, as `file.py:12`; else its innermost line.

    If the file is part of Coterie, the line of the user's own code is preferred, for example of a game.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    mine = [(name, line) for name, line in frames if name == file]
    if any(map(Path(file).is_relative_to, OURS)):
        mine = [(name, line) for name, line in frames if Path(name).is_file() and not _installed(name)] or mine
    name, line = (mine or frames or [(file, 0)])[-1]
    return f"{name}:{line}"


def _installed(file: str) -> bool:
    return any(Path(file).is_relative_to(place) for place in INSTALLED)


def place_in_code(error: BaseException, environment: Environment) -> str:
    """Returns the line of an environment's file in which an exception was met."""
    return raised_at(error, _file(environment))


def recognised(error: BaseException, environment: Environment) -> str:
    """Returns a common mistake in `play` and how it is mended, or "" if the exception is a bug like any other."""
    hint = _of_attribute(error) if isinstance(error, AttributeError) else ""
    if isinstance(error, TypeError):
        hint = _of_type(str(error))
    elif isinstance(error, ValidationError) and error.errors()[0]["type"] == "frozen_instance":
        hint = "an environment is frozen; what play finds out belongs in variables of its own"
    elif isinstance(error, NameError | ImportError) and not isinstance(error, UnboundLocalError):
        mine = _last_file(error) == _file(environment)  # else it is a bug of what play has called
        hint = f"{said(error)}; import it at the top of the file, or mend the name" if mine else ""
    return f"{place_in_code(error, environment)}: {hint}" if hint else ""


def _of_attribute(error: AttributeError) -> str:
    """Returns a hint if a coroutine, a reply or the scene is asked for something that it does not have, else ""."""
    if inspect.iscoroutine(error.obj):
        error.obj.close()  # it is told here: Python need not warn of it too
        return f".{error.name} is asked of a coroutine; write `await` before the call that made it"
    if isinstance(error.obj, Reply):
        return f"a reply has no {error.name}; its words are a string, reply.text"
    if isinstance(error.obj, Scene):
        return f"the scene has no {error.name}{nearest(error.name, METHODS)}; it has {', '.join(METHODS)}"
    return ""


def _of_type(message: str) -> str:
    """Returns a hint if the scene is called with other arguments, or something is taken for a string, else ""."""
    if message.startswith("Scene."):
        return f"{message}; see coterie.Scene for its arguments"
    if any(name in message for name in AWAITED):
        return f"{message}; write `await scene.ask(…)`, and take the reply's words from reply.text"
    return ""


def _last_file(error: Exception) -> str:
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1]


def _file(environment: Environment) -> str:
    try:
        return inspect.getfile(type(environment))
    except (OSError, TypeError):  # written at a prompt
        return "<unknown>"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
