"""A matrix of faults: each part of a cluster is killed, stopped or slow while it samples, learns, syncs and saves."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from coterie import load_config, train
from coterie.errors import CheckpointError
from coterie.run import lookout
from coterie.run import train as module
from coterie.run.ledger import audit
from coterie.run.weights import TeamModels
from tests.run.test_cluster import SETS, alone, config, parts  # noqa: F401
from tests.run.test_runs import model  # noqa: F401
from tests.toys import Hears

ray = pytest.importorskip("ray")
from coterie.run.cluster import engine  # noqa: E402 they need it
from coterie.run.cluster.learner import PooledLearner  # noqa: E402

pytestmark = pytest.mark.cluster
PHASES = {"sampling": (TeamModels, "rollout"), "update": (PooledLearner, "update"), "sync": (TeamModels, "sync"),
          "save": (module, "_save")}  # fmt: skip
EVERY = ["train.steps=6", "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.ranks=2"]


def strikes(monkeypatch, blow, phases=tuple(PHASES)) -> tuple[list[str], Hears]:
    """Has a blow fall within each phase, one a step. Returns the phases that were met, and who has to hear of steps."""
    left, met, armed = list(phases), [], []

    def hook(phase, owner, name):
        function = getattr(owner, name)

        def struck(*args, **kwargs):
            if armed and left[:1] == [phase]:
                armed.clear()
                met.append(left.pop(0))
                threading.Timer(0.02, blow).start()
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, struck)

    for phase in phases:
        hook(phase, *PHASES[phase])
    return met, Hears(lambda line: armed.extend([True] * (line["step"] >= 1)))


@pytest.mark.parametrize("victim", ["Replica", "Worker", "Rank"])
@pytest.mark.parametrize("fault", ["killed", "stopped", "slow"])
def test_a_part_may_be(fault, victim, model, tmp_path, monkeypatch, capfd):  # noqa: F811
    monkeypatch.setattr(lookout, "SILENT_S", 6.0)
    monkeypatch.setattr(lookout, "HUNG_S", 10.0)
    monkeypatch.setattr(engine, "DEATHS", 99)
    hit: list[psutil.Process] = []

    def blow() -> None:
        while not (there := parts(victim)):  # what was hit before is starting anew
            time.sleep(0.1)
        one = there[0]
        hit.append(one)
        one.send_signal(signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
        if fault == "slow":
            threading.Timer(3.0, one.send_signal, [signal.SIGCONT]).start()

    met, heard = strikes(monkeypatch, blow)
    ahead = int(victim == "Worker")
    train(config(model, *EVERY, f"runtime.max_staleness={ahead}"), tmp_path / "run", trackers=[heard])
    assert met == list(PHASES)
    assert len(hit) == len(PHASES)
    told = audit(tmp_path / "run")
    assert not told.odd
    assert told.steps == 6
    ended = capfd.readouterr().err.count("has not answered for 10 s, and is killed")
    assert ended in ((3, 4) if fault == "stopped" else (0,)), "the last is not needed any more, and ends with the run"
    assert not any(process.is_running() for process in hit)


KILLED = """
import os, signal, sys
import pytest
from coterie import load_config, train
from tests.run.test_cluster_faults import strikes

if __name__ == "__main__":
    phase, folder, *sets = sys.argv[1:]
    patch = pytest.MonkeyPatch()
    _, heard = strikes(patch, lambda: os.kill(os.getpid(), signal.SIGKILL), [phase])
    train(load_config("tests/toys.py:Agree", sets), folder, trackers=[heard])
"""


@pytest.mark.parametrize("phase", PHASES)
def test_the_runs_process_may_be_killed(phase, model, tmp_path):  # noqa: F811
    (tmp_path / "killed.py").write_text(KILLED)
    sets = [one.replace("TINY", str(model)) for one in (*SETS, *EVERY)]
    command = [sys.executable, str(tmp_path / "killed.py"), phase, str(tmp_path / "run"), *sets]
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    train(load_config("tests/toys.py:Agree", sets), resume=tmp_path / "run")
    told = audit(tmp_path / "run")
    assert not told.odd
    assert (told.steps, told.incarnations) == (6, 2)


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk")
def test_a_disk_that_fills_up_is_one_line_and_the_run_goes_on_when_there_is_room(model, tmp_path):  # noqa: F811
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=True)
    try:
        filler = disk / "filler"

        def fill(line) -> None:
            if line["step"] == 2:
                free = os.statvfs(disk)
                filler.write_bytes(bytes(free.f_bavail * free.f_frsize - 20_000))

        with pytest.raises(
            CheckpointError, match=r"No space left on device.*; make room and go on with: coterie train"
        ):
            train(config(model, *EVERY), disk / "run", trackers=[Hears(fill)])
        filler.unlink()
        train(config(model, *EVERY), resume=disk / "run")
        told = audit(disk / "run")
        assert not told.odd
        assert told.steps == 6
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
