"""What a run survives: killed at any moment, a disk that fills up, an engine that fails."""

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from coterie import load_config, train
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import CheckpointError, Unavailable
from coterie.models.load import save_model
from coterie.run import train as module
from coterie.run.folder import Run
from coterie.run.interrupts import Interrupts, Stop
from coterie.run.weights import TeamModels
from tests.toys import Hears, Here, tiny

KILLS = 20
SETS = [
    "team.a=x",
    "team.b=y",
    "train.steps=12",
    "train.tasks_per_step=4",
    "train.eval_tasks=10",
    "train.eval_every=3",
    "train.checkpoint_every=2",
    "train.keep_checkpoints=3",
    "train.episodes_every=2",
    "algorithm.num_generations=4",
    "optimizer.lr=1e-2",
    "train.max_mismatch=1000",  # a script has no probabilities
]


class Scripted(ScriptedEngine):
    """Knows no weights: what is trained is what the script said."""

    def __init__(self) -> None:
        super().__init__(lambda role, prompt, rng: rng.choice("ab"))
        self.versions = {"x": 0, "y": 0}


def with_scripted_engine(monkeypatch) -> None:
    begin = TeamModels.__init__

    def begin_scripted(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.engine = Here(Scripted())

    monkeypatch.setattr(TeamModels, "__init__", begin_scripted)


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("faults") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return [*SETS, f"policies.x.model={folder}", f"policies.y.model={folder}"]


def child(work) -> int:
    """Runs work in a process of its own, which has everything loaded already. Returns its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:  # the child must never come back into pytest
        os._exit(1)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock and what says when and how it was started; metrics without times."""
    found = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in ("lock", "about.json", "config.toml", "owner", "metrics.jsonl")
    }
    lines = [{key: value for key, value in line.items() if "time/" not in key} for line in Run(folder).metrics()]
    return found | {"metrics": repr(lines).encode()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", [pytest.param("scripted", marks=pytest.mark.long), "transformers"])
def test_killed_at_twenty_moments_and_resumed_it_equals_an_unbroken_run(engine, sets, tmp_path, monkeypatch):
    if engine == "scripted":
        with_scripted_engine(monkeypatch)
    config, folder = load_config("tests/toys.py:Agree", sets), tmp_path / "killed"
    began = time.monotonic()
    train(config, tmp_path / "whole")
    lasted = time.monotonic() - began

    def go_on() -> None:
        if folder.exists():
            train(config, resume=folder)
        else:
            train(config, folder)

    rng, killed = Random(0), 0
    while killed < KILLS:
        pid = child(go_on)
        time.sleep(rng.uniform(0, lasted / 3))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        else:  # it had come to its end: the next life starts over
            assert status == 0
            assert contents(folder) == contents(tmp_path / "whole")
            shutil.rmtree(folder)
    go_on()
    assert contents(folder) == contents(tmp_path / "whole")


class Signalling(Scripted):
    """A signal arrives while a wave is answered: again and again, as a scheduler's that has lost patience."""

    def __init__(self, number: int, at: int, times: int) -> None:
        super().__init__()
        self.number, self.at, self.times, self.calls = number, at, times, 0

    async def generate(self, requests):
        self.calls += 1
        if self.calls == self.at:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)
        return await super().generate(requests)


PROBED = ["train.mute_every=1", "train.mute_tasks=5", "train.steps=6"]
"""A probe of each role after every validation."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGHUP, signal.SIGUSR1))],
)
def test_a_signal_at_any_wave_saves_what_is_done_and_the_run_goes_on_as_if_nothing_had_been(
    number, sets, tmp_path, monkeypatch
):
    """In the first validation, a rollout, a validation, a probe, and in the resumed run again."""
    with_scripted_engine(monkeypatch)
    config = load_config("tests/toys.py:Agree", [*sets, *PROBED])
    counting = Signalling(number, 0, 0)
    monkeypatch.setitem(globals(), "Scripted", lambda: counting)
    train(config, tmp_path / "whole")
    assert sum("mute/a/change" in line for line in Run(tmp_path / "whole").metrics()) == 2
    folder, waves, stopped, told = tmp_path / "run", counting.calls, 0, []
    for at in range(1, waves + 1):  # each life is one wave longer than the last: every wave is met
        engine = Signalling(number, at - 2 * stopped if at > 2 * stopped else 1, 2)
        monkeypatch.setitem(globals(), "Scripted", lambda engine=engine: engine)
        try:
            train(config, **({"resume": folder} if folder.exists() else {"out": folder}))
        except Stop as stop:
            stopped += 1
            told.append((stop.number, "saved as of step" in str(stop)))
            with Run(folder).checkpoints.reading() as (_, progress):
                done = progress.step - (progress.pending is not None)
            assert [int(line["step"]) for line in Run(folder).metrics()] == list(range(done + 1))
        if Run(folder).metrics() and Run(folder).metrics()[-1]["step"] == config.train.steps:
            break
    assert stopped > 3
    assert set(told) == {(number, True)}
    monkeypatch.setitem(globals(), "Scripted", lambda: Signalling(number, 0, 0))
    train(config, resume=folder)
    assert without_extra(contents(folder)) == without_extra(contents(tmp_path / "whole"))


def without_extra(found: dict[str, bytes]) -> dict[str, bytes]:
    """Where a run is stopped, it saves one checkpoint more: what counts is the last."""
    return {name: content for name, content in found.items() if "checkpoints/" not in name or "step-00006" in name}


@pytest.mark.slow
def test_tools_that_crash_and_spin_cost_nothing_in_training_validation_probe_and_resume(sets, tmp_path, monkeypatch):
    """Killed in every phase and resumed, the run is what it would have been; the metrics count what the tools did."""
    with_scripted_engine(monkeypatch)
    small = [
        "train.steps=4",
        "train.eval_every=2",
        "train.mute_every=1",
        "train.mute_tasks=4",
        "train.eval_tasks=8",
        "engine.call_timeout_s=0.3",
    ]
    config = load_config("tests/troubled.py:Tooled", [*sets, *small, "algorithm.num_generations=2"])
    train(config, tmp_path / "whole")
    lines = Run(tmp_path / "whole").metrics()
    assert sum(line.get("call/killed/crashes", 0) for line in lines) > 20
    assert sum(line.get("call/spin/timeouts", 0) for line in lines) > 3
    assert "mute/a/change" in lines[2]
    folder, stopped = tmp_path / "run", 0
    for at in (2, 5, 9, 14, 20):
        monkeypatch.setitem(globals(), "Scripted", lambda at=at: Signalling(signal.SIGTERM, at, 2))
        try:
            train(config, **({"resume": folder} if folder.exists() else {"out": folder}))
        except Stop:
            stopped += 1
    monkeypatch.setitem(globals(), "Scripted", lambda: Signalling(signal.SIGTERM, 0, 0))
    train(config, resume=folder)
    assert stopped > 2
    last = "step-00004"
    mine, whole = ({name: one for name, one in contents(path).items() if "checkpoints/" not in name or last in name}
                   for path in (folder, tmp_path / "whole"))  # fmt: skip
    assert mine == whole


@pytest.mark.slow
def test_one_sigterm_with_time_enough_finishes_the_step(sets, tmp_path, monkeypatch):
    with_scripted_engine(monkeypatch)
    config = load_config("tests/toys.py:Agree", [*sets, "train.grace_s=600"])
    monkeypatch.setitem(globals(), "Scripted", lambda: Signalling(signal.SIGTERM, 6, 1))
    with pytest.raises(Stop, match=r"stopped after step (\d+); saved as of step \1; go on with") as caught:
        train(config, tmp_path / "run")
    assert caught.value.number == signal.SIGTERM
    with Run(tmp_path / "run").checkpoints.reading() as (_, progress):
        assert progress.pending is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
def test_when_the_grace_time_is_over_the_step_is_given_up(sets, tmp_path, monkeypatch):
    class Slow(Signalling):
        async def generate(self, requests):
            found = await super().generate(requests)
            if self.calls == self.at:
                began = time.monotonic()
                while time.monotonic() < began + 5:  # if nobody gives up
                    pass
            return found

    with_scripted_engine(monkeypatch)
    config = load_config("tests/toys.py:Agree", [*sets, "train.grace_s=0.05"])
    monkeypatch.setitem(globals(), "Scripted", lambda: Slow(signal.SIGTERM, 6, 1))
    with pytest.raises(Stop, match=r"stopped; saved as of step \d+"):
        train(config, tmp_path / "run")


def test_signals_that_are_ignored_stay_ignored_and_ctrl_c_answers_at_once(monkeypatch, capfd):
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)  # as under nohup
    with Interrupts(60) as interrupts:
        monkeypatch.undo()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        interrupts.busy = "step 12"
        os.kill(os.getpid(), signal.SIGINT)
        assert capfd.readouterr().err == "\ncoterie: finishing step 12, then saving; press again to give it up\n"
        with pytest.raises(Stop, match="stopped") as caught:
            os.kill(os.getpid(), signal.SIGINT)
        assert caught.value.save
        with pytest.raises(Stop, match="at once") as caught:
            os.kill(os.getpid(), signal.SIGINT)
        assert not caught.value.save


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_schedulers_signal_has_the_step_finished_and_the_run_saved(number, capfd):
    with Interrupts(60) as interrupts:
        interrupts.busy = "step 12"
        os.kill(os.getpid(), number)
        assert interrupts.number == number
        name = signal.Signals(number).name
        assert capfd.readouterr().err == f"\ncoterie: {name}: finishing step 12 within 60 s, then saving\n"


def test_before_there_is_a_step_a_signal_stops_at_once():
    with Interrupts(60) as interrupts:
        interrupts.beginning = True
        with pytest.raises(Stop, match="stopped before its first step") as caught:
            os.kill(os.getpid(), signal.SIGINT)
        assert not caught.value.save


def test_a_signal_that_a_library_swallows_while_it_is_loaded_stops_the_run_at_its_first_step(
    sets, tmp_path, monkeypatch
):
    def swallowing(config) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(9)

    monkeypatch.setattr(module, "check_fits", swallowing)
    with_scripted_engine(monkeypatch)
    with pytest.raises(Stop) as caught:
        train(load_config("tests/toys.py:Agree", sets), tmp_path / "run")
    assert caught.value.number == signal.SIGTERM
    assert not any(line["step"] for line in Run.open(tmp_path / "run").metrics())


def test_what_is_begun_behind_a_shield_is_finished_before_the_run_gives_up():
    finished: list[bool] = []

    def update(interrupts: Interrupts) -> None:
        with interrupts.shielded():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            finished.append(True)

    with Interrupts(60) as interrupts:
        with pytest.raises(Stop):
            update(interrupts)
        assert finished
        assert interrupts.whole


def test_what_hangs_behind_a_shield_is_left_some_time_after_the_grace(monkeypatch):
    monkeypatch.setattr("coterie.run.interrupts.SHIELD_S", 0.3)
    began = time.monotonic()

    def hangs() -> None:
        with interrupts.shielded():
            for _ in range(200):  # however often it is sent
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.1)

    with Interrupts(0.05) as interrupts, pytest.raises(Stop, match="at once") as caught:
        hangs()
    assert not caught.value.save
    assert caught.value.number == signal.SIGTERM
    assert 0.3 < time.monotonic() - began < 10


def test_a_stop_that_a_library_turns_into_an_interrupt_of_its_own_is_still_a_stop():
    def waits() -> None:
        with Interrupts(60) as interrupts:
            interrupts.beginning = True
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except Stop:
                raise KeyboardInterrupt from None

    with pytest.raises(Stop, match="stopped before its first step") as caught:
        waits()
    assert caught.value.number == signal.SIGTERM
    with pytest.raises(KeyboardInterrupt) as other, Interrupts(60):
        raise KeyboardInterrupt
    assert not isinstance(other.value, Stop)


def test_the_timer_ends_with_the_run_it_was_for():
    heard = []
    with Interrupts(0.05):
        os.kill(os.getpid(), signal.SIGTERM)
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    try:
        time.sleep(0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not heard


@pytest.mark.long
def test_a_step_that_was_left_before_its_validation_has_one_line_however_often_it_is_resumed(
    sets, tmp_path, monkeypatch
):
    with_scripted_engine(monkeypatch)
    config = load_config("tests/toys.py:Agree", sets)
    at = next(at for at in range(1, 99) if left_pending(config, tmp_path / f"run{at}", at, monkeypatch))
    folder = tmp_path / f"run{at}"
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setitem(globals(), "Scripted", lambda: Signalling(signal.SIGTERM, 0, 0))
    train(config, resume=folder)
    shutil.rmtree(folder / "checkpoints")  # killed before its next checkpoint: the later lines are there
    shutil.copytree(tmp_path / "copy/checkpoints", folder / "checkpoints")
    train(config, resume=folder)
    assert [line["step"] for line in Run(folder).metrics()] == list(range(config.train.steps + 1))


def left_pending(config, folder: Path, at: int, monkeypatch) -> bool:
    """Whether a run that is stopped at a wave is stopped in the validation of a step."""
    monkeypatch.setitem(globals(), "Scripted", lambda: Signalling(signal.SIGTERM, at, 2))
    with pytest.raises(Stop):
        train(config, folder)
    with Run(folder).checkpoints.reading() as (_, progress):
        return progress.pending is not None and progress.step > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "output", ["a pipe that nobody reads", *(pytest.param(each, marks=pytest.mark.long) for each in ("closed", "full"))]
)
def test_what_is_shown_can_never_stop_a_run(output, sets, tmp_path):
    command = [sys.executable, "-m", "coterie.cli", "train", "tests/toys.py:Agree", "--out", str(tmp_path / "run")]
    command += [word for one in [*sets, "train.steps=3", "eval.tasks=5"] for word in ("--set", one)]
    how = {"closed": ">&-", "full": ">/dev/full", "a pipe that nobody reads": "| head -1"}[output]
    shell = f'set -o pipefail; {shlex.join(command)} {how}; echo "left with $?" >&2'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert "left with 0" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert Run(tmp_path / "run").metrics()[-1]["step"] == 3
    assert Run(tmp_path / "run").checkpoints.steps()[-1] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "room", [pytest.param(200, marks=pytest.mark.long), 6_000, pytest.param(60_000, marks=pytest.mark.long)]
)
def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(room, sets, tmp_path):
    """No file may grow beyond `room` bytes from step 3 on: a metrics line, a rollout or a checkpoint is refused."""
    config, folder = load_config("tests/toys.py:Agree", sets), tmp_path / "full"
    hear, say = os.pipe()  # a pipe has no limit

    def fill(line) -> None:
        if line["step"] == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    def work() -> None:
        try:
            train(config, folder, trackers=[Hears(fill)])
        except CheckpointError as error:
            os.write(say, str(error).encode())

    _, status = os.waitpid(child(work), 0)
    os.close(say)
    said = os.read(hear, 10_000).decode()
    os.close(hear)
    assert status == 0
    assert "could not be written: " in said
    assert "File too large" in said
    assert said.endswith(f"make room and go on with: coterie train --resume {folder}")
    assert "\n" not in said
    assert not list(folder.rglob(".*"))
    train(config, resume=folder)
    train(config, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


class Failing(Scripted):
    """Fails every third wave, once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def generate(self, requests):
        self.calls += 1
        if self.calls % 3 == 0:
            raise Unavailable("engine", "by design")
        return await super().generate(requests)


@pytest.mark.slow
def test_an_engine_that_fails_mid_wave_is_asked_again_and_counted_and_changes_nothing(sets, tmp_path, monkeypatch):
    with_scripted_engine(monkeypatch)
    config = load_config("tests/toys.py:Agree", sets)
    train(config, tmp_path / "whole")
    monkeypatch.setitem(globals(), "Scripted", Failing)
    run = train(config, tmp_path / "failing")
    assert sum(line.get("rollout/retried/engine", 0) for line in run.metrics()) > 3
    assert not any(key.startswith("rollout/dropped") for line in run.metrics() for key in line)
    left, right = contents(tmp_path / "whole"), contents(run.folder)
    differ = {name for name in left if left[name] != right[name]}
    assert all(name == "metrics" or name.endswith(("progress.json", "manifest.json")) for name in differ)  # calls, and
    assert any(name.endswith(".safetensors") for name in left)  # nothing that was learned
