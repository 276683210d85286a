"""The conformance check: tests that an environment keeps the contract of `play`.

    report = coterie.check(MyEnv())
    assert report.ok, report

Every episode is played with four kinds of replies: demonstrations (if there are any), words from the
prompt, silence, and hostile text. It is then replayed event for event, and played again in a second
process with another hash seed and a clock that is one year ahead.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from coterie.checks.playing import Hand, ThreadCount, begun, hands, play_through
from coterie.checks.rehearsal import REWARD_RANGE, never_asked, out_of_range, replayed, roles_asked
from coterie.checks.splits import how_many_differ, wrong_tasks
from coterie.errors import ConfigError, EnvError
from coterie.kernel import calls
from coterie.kernel.cursor import Cursor, PlayBug
from coterie.kernel.environment import SPLITS, Environment, Split, Task
from coterie.kernel.episode import LOGS, Asked, Horizon, LoggedPrompt, check_seen, text_of
from coterie.kernel.loops import aside, drive
from coterie.kernel.mistakes import check_written, make_ready, place_in_code, task_of
from coterie.kernel.scene import JSON, Reply, role_of
from coterie.kernel.watchdog import Stuck, Watch
from coterie.registry import USER_MODULE, find
from coterie.seeds import seed_of

CALL_TIMEOUT_S = 10.0
"""Seconds that one `scene.call` may take in a check."""
PLAY_TIMEOUT_S = 10.0
"""Seconds that an environment's own code may take from an answer to its next question."""


ALL_ASKED = "every role is asked"
"""A claim that is only a warning: a role may be asked after replies that nobody gave here, or in rare tasks."""
RARE = 40
"""Maximum number of further train tasks that are played until every role was asked."""
REPEATS, REPEATS_S = 1000, 2.0
"""Maximum number of test tasks that are looked at for repeats, and of seconds for that."""


class Patience(Watch):
    """A watch over `play`: the seconds that it may run without coming back, and that a call of it may take."""

    def __init__(self, play_s: float, call_s: float) -> None:
        super().__init__(play_s)
        self.call_s = call_s


Inspect = Callable[[Environment, Task, Hand, Patience], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, whether it holds, and what was seen if it does not.

    stuck: some code of the environment never came back. tried: False where an earlier error left nothing to test.
    warning: nothing is proved wrong, but the detail deserves a look.
    """

    claim: str
    ok: bool
    detail: str = ""
    stuck: bool = False
    tried: bool = True
    warning: bool = False

    def __str__(self) -> str:
        mark = "warn " if self.warning else "ok   " if self.ok else "FAIL " if self.tried else "-    "
        return f"{mark}{self.claim}{': ' + self.detail if self.detail else ''}"


@dataclass(frozen=True, slots=True)
class Report:
    """Findings of `check`."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if every claim holds."""
        return all(finding.ok for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def check(
    environment: Environment,
    *,
    tasks: int = 3,
    horizon: Horizon = "turn",
    decentralised: bool = False,
    call_timeout_s: float = CALL_TIMEOUT_S,
    play_timeout_s: float = PLAY_TIMEOUT_S,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Plays and replays an environment, and reports which parts of the contract it keeps.

    Args:
        environment: the environment, as an instance.
        tasks: number of tasks that are played in each split.
        horizon: the horizon after which no local reward may come.
        decentralised: whether to test that no role is ever shown text of another role.
        call_timeout_s: seconds that a call may take.
        play_timeout_s: seconds that `play` may run without returning to the scene; after a time-out no further
            property is checked.
        progress: called with each property before it is checked.

    Raises:
        ConfigError: a class was given instead of an instance.
    """
    if isinstance(environment, type):
        raise ConfigError(f"{environment.__name__} is a class; check what it makes: check({environment.__name__}())")
    if not isinstance(environment, Environment):
        raise ConfigError(f"{environment!r:.80} is no environment; a file's: check(load_config('FILE.py').environment)")
    watch = Patience(play_timeout_s, call_timeout_s)
    findings = [_claim(environment, "roles, task and play are written as they must be", lambda: _written(environment))]
    findings.append(_claim(environment, "this machine can play it", lambda: _ready(environment)))
    if not findings[-1].ok:
        return Report(tuple(findings))
    findings.append(
        _claim(
            environment,
            "task(split, index) is pure, and its splits are disjoint",
            lambda: wrong_tasks(environment, watch),
        )
    )
    if findings[-1].ok:
        differ = how_many_differ(environment, watch, tasks=REPEATS, limit_s=REPEATS_S)
        findings.append(Finding("test tasks that differ", ok=True, detail=differ))
        findings += aside(lambda: _watched(environment, tasks, horizon, decentralised, watch, progress))
    return Report(tuple(findings))


def _watched(
    environment: Environment,
    tasks: int,
    horizon: Horizon,
    decentralised: bool,
    watch: Patience,
    progress: Callable[[str], None],
) -> list[Finding]:
    with watch:
        return list(_played(environment, tasks, horizon, decentralised, watch, progress))


def _played(
    environment: Environment,
    tasks: int,
    horizon: Horizon,
    decentralised: bool,
    watch: Patience,
    progress: Callable[[str], None],
) -> Iterator[Finding]:
    """Yields the findings of playing, up to a play that does not come back."""
    chosen: list[tuple[Split, int]] = [
        (split, index) for split in SPLITS for index in range(_at_most(environment, split, tasks))
    ]

    def each(inspect: Inspect, wanted: Sequence[Hand] = ()) -> Callable[[], str]:
        return partial(_each, environment, chosen, inspect, wanted, watch)

    claims: list[tuple[str, Callable[[], str]]] = [
        ("play ends, whatever roles say, and raises nothing", each(_ends)),
        ("a replay says the same, event for event", each(_replays)),
        ("the task is not changed by playing it", each(_keeps_task)),
        (REWARD_RANGE, each(_in_range)),
        (f"every local reward is seen by horizon '{horizon}'", each(partial(_seen, horizon=horizon))),
    ]
    if decentralised:
        markers = (_marking(environment, 0), _marking(environment, 1))
        claims.append(("no role is shown what another said", each(_apart, markers)))
    claims += [
        ("some role is asked", lambda: _asks(environment, chosen, watch)),
        (ALL_ASKED, lambda: _asks_all(environment, chosen, watch)),
        ("a second process plays the same", lambda: _second_process(environment, tasks, watch)),
    ]
    for number, (claim, test) in enumerate(claims):
        progress(claim)
        finding = _claim(environment, claim, test)
        if claim == ALL_ASKED and not finding.ok and not finding.stuck:
            shown = type(environment).demonstrate is not Environment.demonstrate
            hint = "" if shown else "; if it is asked after good replies only, write demonstrate()"
            finding = Finding(claim, ok=True, detail=f"{finding.detail}{hint}", warning=True)
        yield finding
        if finding.stuck:
            return
        if not number and not finding.ok:
            for later, _ in claims[1:]:
                yield Finding(later, ok=False, detail="not tried, since play raised", tried=False)
            return


def digests(environment: Environment, tasks: int, watch: Patience) -> list[str]:
    """Returns a hash for each task and hand, which another process must find too."""
    differences: list[str] = []
    for split in SPLITS:
        for index in range(_at_most(environment, split, tasks)):
            task = task_of(environment, split, index)
            differences += [
                hashlib.sha256(LOGS.dump_json(_play(environment, task, hand, watch).log)).hexdigest()
                for hand in hands(environment)
            ]
    return differences


def _claim(environment: Environment, claim: str, test: Callable[[], str]) -> Finding:
    try:
        wrong = test()
    except Stuck as error:
        return Finding(claim, ok=False, detail=str(error), stuck=True)
    except (EnvError, ConfigError) as error:
        wrong = str(error)
    except PlayBug as bug:
        wrong = str(bug)
    except Exception as error:  # the environment's own code may raise anything
        wrong = f"{type(error).__name__}: {error} ({place_in_code(error, environment)})"
    return Finding(claim, not wrong, wrong)


def _at_most(environment: Environment, split: Split, tasks: int) -> int:
    count = environment.count(split)
    return tasks if count is None else min(tasks, count)


def _written(environment: Environment) -> str:
    check_written(environment)
    return ""


def _ready(environment: Environment) -> str:
    make_ready(environment)
    return ""


def _asks(environment: Environment, chosen: Sequence[tuple[Split, int]], watch: Patience) -> str:
    for split, index in chosen:
        cursor = _play(environment, task_of(environment, split, index), hands(environment)[0], watch)
        if any(isinstance(event, Asked) for event in cursor.events):
            return ""
    return f"no role was asked anything in {len(chosen)} episodes, so nothing can be learned"


def _asks_all(environment: Environment, chosen: Sequence[tuple[Split, int]], watch: Patience) -> str:
    """Names the roles that no episode of any split asked, whatever the others said.

    A role may be asked in few kinds of tasks, so more train tasks are played before it is named.
    """
    asked: set[str] = set()
    more = [("train", index) for index in range(_at_most(environment, "train", RARE))]
    episodes = [*itertools.product(chosen, hands(environment)), *((task, hands(environment)[0]) for task in more)]
    for (split, index), hand in episodes:
        asked |= roles_asked(_play(environment, task_of(environment, split, index), hand, watch))
        if asked.issuperset(environment.roles):
            return ""
    return never_asked(environment, asked, SPLITS, len(episodes))


def questions(environment: Environment, hand: Hand, tasks: int, watch: Patience) -> Iterator[Asked]:
    """Yields every question of the episodes that a hand plays."""
    for split in SPLITS:
        for index in range(_at_most(environment, split, tasks)):
            events = _play(environment, task_of(environment, split, index), hand, watch).events
            yield from (event for event in events if isinstance(event, Asked))


def _play(environment: Environment, task: Task, hand: Hand, watch: Patience) -> Cursor:
    """Plays one episode. Raises EnvError if play starts work of its own or never ends."""
    threads = ThreadCount()

    async def perform(function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
        before = threading.active_count()
        try:
            return await _outside(watch.call_s, function, args)
        finally:
            threads.ours += (
                threading.active_count() - before
            )  # those that keep sandboxes warm start with the first call

    cursor = begun(environment, task, watch, perform)
    play_through(cursor, hand, watch, threads)
    return cursor


async def _outside(limit_s: float, function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
    """Makes a call as a run does: what may crash does so elsewhere; a thread would look like one that play started."""
    if isinstance(function, calls.InThread):
        return await calls.perform_inline(function, args)
    return await calls.run(function, args, limit_s)


def _each(
    environment: Environment,
    places: list[tuple[Split, int]],
    inspect: Inspect,
    wanted: Sequence[Hand],
    watch: Patience,
) -> str:
    wrongs = (
        inspect(environment, task_of(environment, split, index), hand, watch)
        for split, index in places
        for hand in wanted or hands(environment)
    )
    return next((wrong for wrong in wrongs if wrong), "")


def _marking(environment: Environment, demonstrated: int) -> Hand:
    """Returns a hand whose every reply holds a marker of its role, alone or after a demonstration."""

    def say(role: str, task: Task, prompt: LoggedPrompt, rng: Random) -> Reply:
        words = ""
        if demonstrated:
            with contextlib.suppress(NotImplementedError):
                words = environment.demonstrate(role, task, text_of(prompt), rng)
        return Reply(role, f"{words}\n{_marker(role)}")

    return say


def _marker(role: str) -> str:
    return f"marker{seed_of('marker', role) % 10**9}"


def _apart(environment: Environment, task: Task, hand: Hand, watch: Patience) -> str:
    for at, event in enumerate(
        event for event in _play(environment, task, hand, watch).events if isinstance(event, Asked)
    ):
        for speaker, prompt in event.prompts.items():
            role = role_of(speaker)
            for other in environment.roles:
                if other != role and _marker(other) in text_of(prompt):
                    return f"task {task.id}, point {at}: '{role}' is shown words of '{other}'"
    return ""


def _ends(environment: Environment, task: Task, hand: Hand, watch: Patience) -> str:
    _play(environment, task, hand, watch)
    return ""


def _replays(environment: Environment, task: Task, hand: Hand, watch: Patience) -> str:
    played = _play(environment, task, hand, watch)
    time.sleep(0.001)  # so that an environment that reads the clock differs
    last = sum(isinstance(event, Asked) for event in played.events) - 1
    if last >= 0:
        drive(played.fork(last).advance())
    replayed(played)
    return ""


def _keeps_task(environment: Environment, task: Task, hand: Hand, watch: Patience) -> str:
    before = copy.deepcopy(task)
    _play(environment, task, hand, watch)
    return "" if task == before else f"task {task.id} has changed; copy what play alters"


def _in_range(environment: Environment, task: Task, hand: Hand, watch: Patience) -> str:
    return out_of_range(_play(environment, task, hand, watch))


def _seen(environment: Environment, task: Task, hand: Hand, watch: Patience, horizon: Horizon) -> str:
    check_seen(_play(environment, task, hand, watch).events, horizon)
    return ""


def _second_process(environment: Environment, tasks: int, watch: Patience) -> str:
    kind = type(environment)
    if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
        return f"{kind.__qualname__} is not at the top of a module, so a second process cannot import it"
    home = inspect.getfile(kind) if kind.__module__.startswith(USER_MODULE) else kind.__module__
    payload = json.dumps(
        [home, kind.__qualname__, environment.model_dump(mode="json"), tasks, watch.limit_s, watch.call_s]
    )
    ours = digests(environment, tasks, watch)
    process = subprocess.run(
        [sys.executable, "-P", "-c", "from coterie.checks.conformance import _second; _second()"],
        input=payload,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if process.returncode:
        said = process.stderr.strip().splitlines() or [f"it ended with {process.returncode}"]
        return f"it failed: {said[-1]}"
    theirs = json.loads(process.stdout)
    if theirs == ours:
        return ""
    first = next(at for at, (left, right) in enumerate(zip(ours, theirs, strict=True)) if left != right)
    return (
        f"episode {first} differs there; look for the order of a set, hash(), id(), a clock or a global "
        "that play or task depends on"
    )


def _a_year_ahead(clock: Callable[[], float]) -> float:
    return clock() + 31_536_000


def _second() -> None:
    """Runs in the second process: it writes digests of the environment that is named on standard input.

    Whatever the environment prints goes to standard error; the answer alone is on standard output.
    """
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    home, name, settings, tasks, *limits = json.loads(sys.stdin.read())
    for clock in ("time", "monotonic", "perf_counter"):
        setattr(time, clock, partial(_a_year_ahead, getattr(time, clock)))
    environment = find("environment", f"{home}:{name}", Environment)(**settings)
    environment.ready()
    with answer:
        answer.write(json.dumps(digests(environment, tasks, Patience(*limits))))
