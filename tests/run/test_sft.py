"""Training on demonstrations goes on where a signal, a kill or a full disk stopped it, to the same weights."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import torch

from coterie.config.resolve import load_sft
from coterie.errors import CheckpointError, ConfigError
from coterie.models.load import load_model
from coterie.run import sft as module
from coterie.run.interrupts import Stop
from coterie.run.sft import sft
from coterie.run.unfinished import Unfinished

SMALL = ["sft.tasks_per_step=2", "sft.hidden_size=32", "sft.layers=1", "sft.context=512"]


def trained(out, name="tally", sets=SMALL, steps=6, model=None, **how):
    world, config, memory, _ = load_sft(name, [*sets, f"sft.steps={steps}"], model)
    return sft(world, out, config, source=model, memory=memory, **how)


def weights(folder):
    return load_model(str(folder)).net.state_dict()


def equal(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def at(step, number):
    """Sends this process a signal after a step."""
    return lambda done, _: os.kill(os.getpid(), number) if done == step else None


@pytest.mark.parametrize(
    ("number", "name", "sets"),
    [
        (signal.SIGINT, "tally", SMALL),
        (signal.SIGTERM, "tally", SMALL),
        (signal.SIGHUP, "tally", SMALL),
        (signal.SIGUSR1, "tally", SMALL),
        (signal.SIGTERM, "assistants", [*SMALL, "memory.mode=on"]),
    ],
)
def test_a_signal_saves_and_the_same_command_goes_on_to_the_same_weights(number, name, sets, tmp_path):
    trained(tmp_path / "whole", name, sets)
    with pytest.raises(Stop, match=r"^stopped; saved as of step 3; the same command goes on from there$") as stopped:
        trained(tmp_path / "parts", name, sets, progress=at(2, number))
    assert stopped.value.number == number
    assert not (tmp_path / "parts").exists()
    steps = []
    trained(tmp_path / "parts", name, sets, progress=lambda step, _: steps.append(step))
    assert steps == [3, 4, 5]
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


def test_one_that_goes_on_from_a_model_does_so_too(tmp_path):
    trained(tmp_path / "whole", model="starter-tally", sets=SMALL[:1])
    with pytest.raises(Stop):
        trained(tmp_path / "parts", model="starter-tally", sets=SMALL[:1], progress=at(1, signal.SIGTERM))
    trained(tmp_path / "parts", model="starter-tally", sets=SMALL[:1])
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_a_signal_before_the_first_step_leaves_nothing(tmp_path):
    with pytest.raises(Stop, match="stopped before its first step"):
        trained(tmp_path / "out", looking=lambda done, _: os.kill(os.getpid(), signal.SIGTERM))
    assert not list(tmp_path.iterdir())


def test_what_it_has_is_saved_from_time_to_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_S", 0)
    saved, save = [], Unfinished.save
    monkeypatch.setattr(Unfinished, "save", lambda self, steps, *more: (saved.append(steps), save(self, steps, *more)))
    trained(tmp_path / "out", steps=4)
    assert saved == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def begun(code, folder, steps):
    """A process that saves after every step, once it has made so many."""
    code = f"from coterie.run import sft; sft.SAVE_S = 0; {code}"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    reached = folder.with_name(f"{folder.name}.unfinished") / "reached.json"
    while process.poll() is None:
        with suppress(OSError):
            if json.loads(reached.read_text())["steps"] >= steps:
                return process
        time.sleep(0.01)
    pytest.fail("it ended")


@pytest.mark.slow
def test_a_kill_loses_what_was_made_since_the_last_saving(tmp_path):
    trained(tmp_path / "whole", steps=60)
    parts = tmp_path / "parts"
    code = f"from pathlib import Path; from tests.run.test_sft import trained; trained(Path({str(parts)!r}), steps=60)"
    process = begun(code, parts, 3)
    process.kill()
    process.communicate()
    left = []
    trained(parts, steps=60, progress=lambda step, _: left.append(step))
    assert 3 <= left[0] < 60
    assert equal(weights(tmp_path / "whole"), weights(parts))


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_a_command_that_is_stopped_says_so(number, tmp_path):
    command = ["coterie", "sft", "tally", "--out", str(tmp_path / "out"), "--set", "sft.steps=100000"]
    command += [part for each in SMALL for part in ("--set", each)]
    process = begun(f"import sys; sys.argv = {command!r}; from coterie.cli import main; main()", tmp_path / "out", 2)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 128 + number
    assert re.fullmatch(
        r"coterie: stopped; saved as of step \d+; the same command goes on from there", error.splitlines()[-1]
    )


def test_what_lies_there_of_another_training_is_not_taken(tmp_path):
    with pytest.raises(Stop):
        trained(tmp_path / "out", progress=at(1, signal.SIGTERM))
    for changed in (["sft.seed=1"], ["environment.naive=0.5"]):
        with pytest.raises(ConfigError, match=r"out\.unfinished holds a training with other settings; remove it"):
            trained(tmp_path / "out", sets=[*SMALL, *changed])
    (tmp_path / "out.unfinished/reached.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"out\.unfinished is no training that could go on"):
        trained(tmp_path / "out")


def test_one_that_was_being_replaced_when_it_was_killed_is_found(tmp_path):
    with pytest.raises(Stop):
        trained(tmp_path / "out", progress=at(1, signal.SIGTERM))
    (tmp_path / "out.unfinished").rename(tmp_path / ".old-out.unfinished")
    steps = []
    trained(tmp_path / "out", progress=lambda step, _: steps.append(step))
    assert steps == [2, 3, 4, 5]


@pytest.mark.parametrize("where", ["save", "end"])
def test_a_disk_that_is_full_is_one_line(where, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_model", full)
    with pytest.raises(CheckpointError, match=r"could not be written: No space left on device; make room and run the"):
        trained(tmp_path / "out", progress=at(1, signal.SIGTERM) if where == "save" else None)
    assert not list(tmp_path.iterdir())
