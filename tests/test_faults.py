"""What a run survives: killed at any moment, a disk that fills up, an engine that fails."""

import os
import resource
import shutil
import signal
import time
from pathlib import Path
from random import Random

import pytest

from coterie import load_config, train
from coterie.crew import Crew
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import CheckpointError, Unavailable
from coterie.models import save_model
from coterie.runs import Run
from tests.toys import tiny

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
]


class Scripted(ScriptedEngine):
    """Knows no weights: what is trained is what the script said."""

    def __init__(self) -> None:
        super().__init__(lambda role, prompt, rng: rng.choice("ab"))

    def sync(self, policy: str, version: int) -> None:
        """Nothing to take over."""


def with_scripted_engine(monkeypatch) -> None:
    begin = Crew.__init__

    def begin_scripted(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.engine = Scripted()

    monkeypatch.setattr(Crew, "__init__", begin_scripted)


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
        if file.is_file() and file.name not in ("lock", "about.json", "config.toml", "metrics.jsonl")
    }
    lines = [{key: value for key, value in line.items() if "time/" not in key} for line in Run(folder).metrics()]
    return found | {"metrics": repr(lines).encode()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["scripted", "transformers"])
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
        if folder.exists() and not Run(folder).checkpoints():
            shutil.rmtree(folder)  # killed before its first checkpoint: there is nothing to go on from
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
    if not folder.exists() or not Run(folder).checkpoints():
        shutil.rmtree(folder, ignore_errors=True)
    go_on()
    assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.parametrize("room", [200, 6_000, 60_000])
def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(room, sets, tmp_path):
    """No file may grow beyond `room` bytes from step 3 on: a metrics line, a rollout or a checkpoint is refused."""
    config, folder = load_config("tests/toys.py:Agree", sets), tmp_path / "full"
    hear, say = os.pipe()  # a pipe has no limit

    def fill(run, config, line) -> None:
        if line["step"] == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    def work() -> None:
        try:
            train(config, folder, watch=fill)
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
