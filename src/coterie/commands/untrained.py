"""`coterie eval` and `coterie check` measure a team that has not been trained yet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.commands import terminal
from coterie.errors import nearest
from coterie.kernel.safe import command
from coterie.report.output import kept_for_json, say

if TYPE_CHECKING:
    from coterie.config.settings import Config
    from coterie.kernel.environment import Split
    from coterie.run.ablation import Ablation
    from coterie.run.loaded import Loaded
    from coterie.run.signal import Signal

TASKS = 32
"""Number of tasks that an untrained team plays, where --tasks does not say."""
CHECKED = 8
"""Number of train tasks that `coterie check --model` plays."""
PLAYING = "playing train tasks as a training step does"


def names_config(target: str) -> bool:
    """Returns True if a word names a config, and False if it names the folder of a run.

    Raises:
        ConfigError: it is neither.
    """
    from coterie.errors import ConfigError
    from coterie.registry import TABULAR, about, known

    path, worlds = Path(target), known("environment")
    if path.is_dir() and (target not in worlds or (path / "config.toml").is_file()):
        return False
    if path.is_file() and path.name == "config.toml" and (path.parent / "checkpoints").is_dir():
        raise ConfigError(f"{target} is a file; name the folder of a run, {path.parent}, to measure what it trained")
    if path.suffix in (".toml", ".py") or target in worlds or ":" in target or about("environment", target)[1]:
        return True
    if path.suffix in TABULAR and path.is_file():
        raise ConfigError(f"{target} is a table; make a team for it: {command('new', 'team', target)}")
    if path.exists():
        return False
    raise ConfigError(
        f"{target} is not a run folder, and no environment{nearest(target, worlds)}; name a run's folder, a TOML file, "
        "an environment, or FILE.py:Class"
    )


def played_by(target: str, sets: Sequence[str], model: str | None) -> Config:
    """Returns a config whose trained policies begin with another model; frozen ones, where none is trained.

    Args:
        model: a folder or an id; None: the config as it is.
    """
    from coterie.config.resolve import load_config
    from coterie.config.toml import EVERY, Meant

    config = load_config(target, sets)
    if model is None:
        return config
    names = (
        [EVERY] if config.team.trained else [name for name, each in config.policies.items() if each.kind == "frozen"]
    )
    meant = (Meant(f"policies.{name}.model={json.dumps(model)}", f"--model {model}") for name in names)
    return load_config(target, [*sets, *meant])


@contextmanager
def doing(what: str) -> Iterator[Callable[[int, int], None]]:
    """Says on standard error what is done, and each tenth of it; yields a function to call with (tasks done, tasks)."""
    console, told = terminal(stderr=True), {0}
    if console.is_terminal:
        with console.status(what) as status:
            yield lambda done, total: status.update(f"{what}: {done} of {total} tasks")
        return
    console.print(what, markup=False, highlight=False)

    def progress(done: int, total: int) -> None:
        if (tenth := 10 * done // max(1, total)) not in told:
            told.add(tenth)
            console.print(f"  {done} of {total} tasks", markup=False, highlight=False)

    yield progress


@dataclasses.dataclass(frozen=True, slots=True)
class EvalOptions:
    """Options of the evaluation of a team. sampled: episodes a task; of an untrained team, besides a greedy one."""

    split: Split
    tasks: int | None
    sampled: int
    ablations: Sequence[Ablation]
    data: str | None
    log: Path | None


def evaluate_config(config: Config, target: str, wanted: EvalOptions, *, as_json: bool) -> None:
    """Plays held-out tasks and a few train tasks with an untrained team, and prints the results."""
    from coterie.report.evaluation import evaluation_json, evaluation_text
    from coterie.report.logs import Held, writer
    from coterie.report.signal import examples_text, readable_text, signal_data, signal_text
    from coterie.run.evaluate import at_k
    from coterie.run.signal import TASKS as MOST

    write = writer(wanted.log) if wanted.log is not None else None

    def tell(*parts: str) -> None:
        if not as_json:
            say("\n".join(filter(None, parts)))

    with kept_for_json(as_json), _opened(config) as team:
        for remark in team.use(wanted.data) if wanted.data is not None else ():
            say(remark, err=True)
        tasks, sampled = _tasks(team, wanted), wanted.sampled
        with doing(f"playing {wanted.split} tasks, greedy") as progress:
            greedy, changes = team.compare(wanted.ablations, wanted.split, tasks=tasks, progress=progress)
        tell(evaluation_text(greedy, changes, {}, 1), readable_text(greedy))
        drawn, passed = None, dict[int, float]()
        if sampled:
            with doing(f"playing {wanted.split} tasks, {sampled} sampled episodes each") as progress:
                drawn = team.evaluate(wanted.split, tasks=tasks, sampled=sampled, progress=progress)
            passed = {k: at_k(drawn.solved, sampled, k) for k in sorted({1, sampled})}
            tell(evaluation_text(drawn, [], passed, 1), readable_text(drawn))
        last = drawn or greedy
        tell(examples_text(last))
        if write is not None and wanted.log is not None:
            name, roles = config.names["environment"], config.team.roles
            write(wanted.log, Held(name, target, 0, team.config.environment, roles, last))
            say(f"episodes: {wanted.log}", err=True)
        with doing(PLAYING) as progress:
            signal = team.signal(tasks=min(tasks, MOST), progress=progress)
    tell(signal_text(signal))
    if as_json:
        whole: dict[str, Any] = {"greedy": json.loads(evaluation_json(greedy, changes, {}, 1))}
        whole["sampled"] = json.loads(evaluation_json(drawn, [], passed, 1)) if drawn else None
        say(json.dumps({**whole, "signal": signal_data(signal)}))


@contextmanager
def _opened(config: Config) -> Iterator[Loaded]:
    """Yields the team of a config, ready to play; says which servers play in it."""
    from coterie.run.loaded import load

    for line in config.servers():
        say(f"coterie: {line}", err=True)
    with doing("loading models"):
        team = load(config)
    with closing(team):
        yield team


def _tasks(team: Loaded, wanted: EvalOptions) -> int:
    """Returns the number of tasks to play: the number given, or a few, if the split has as many."""
    from coterie.kernel.mistakes import count_of

    there = count_of(team.config.environment, wanted.split)
    return wanted.tasks or min(TASKS, there or TASKS)


def signal_with(config: Config) -> Signal:
    """Returns the learning signal of a config's team, for `coterie check`."""
    with _opened(config) as team, doing(PLAYING) as progress:
        return team.signal(tasks=CHECKED, progress=progress)
