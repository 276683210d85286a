"""Runs whose learner is several processes: they learn as one does, go on with other numbers, and survive deaths."""

import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from safetensors.torch import load_file

from coterie import load_config, train
from coterie.errors import CheckpointError, UpdateError
from coterie.learning import learner
from coterie.models.load import save_model
from coterie.run.folder import Run
from coterie.run.ranks import RankStart, _Rank
from coterie.run.update import update
from tests.run.test_runs import TINY
from tests.runs import cut_back, untimed, weights
from tests.toys import Hears, tiny

pytestmark = pytest.mark.slow


STEADY = "optimizer.eps=1e-4"
"""Adam divides a gradient by its size: one that is the rest of a sum of others, rounding for the most part, too."""


def config(model, *more):
    sets = (*TINY, "train.ranks=2", STEADY, *more)
    return load_config("tests/toys.py:Agree", [one.replace("TINY", str(model)) for one in sets])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Far from sure of any word: else some have gradients of nothing but rounding, which Adam makes whole steps of."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny(), folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def modules():
    """One process computes as ranks do, by modules: Adam divides gradients of nothing but rounding by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "can_lean", lambda _: False)
        yield


@pytest.fixture(scope="module")
def whole(model, modules, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(config(model, "train.ranks=1"), folder)
    return folder


def ranks() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "coterie.run.ranks" in " ".join(child.cmdline())]


def near(one, other, step: int) -> bool:
    """Whether two runs' weights are the same but for the order of additions."""
    files = [run / f"checkpoints/step-{step:05d}/policies/x/model.safetensors" for run in (one, other)]
    mine, theirs = map(load_file, files)
    return all(float((mine[key] - theirs[key]).abs().max()) < 1e-6 for key in theirs)


def test_a_run_of_two_ranks_is_that_of_one_and_goes_on_bit_for_bit(whole, model, tmp_path):
    folder = tmp_path / "run"
    train(config(model), folder)
    assert not update(folder, 2).differs
    assert ranks() == []
    assert near(folder, whole, 4)
    for mine, theirs in zip(untimed(folder), untimed(whole), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-3)
    shutil.copytree(folder, tmp_path / "again")
    cut_back(tmp_path / "again", 2)
    train(config(model), resume=tmp_path / "again")
    assert untimed(tmp_path / "again") == untimed(folder)
    assert weights(tmp_path / "again", 4) == weights(folder, 4)
    cut_back(tmp_path / "again", 2)
    with pytest.raises(CheckpointError, match=r"it was run with ranks 2, here unknown; set train.ranks to that number"):
        train(config(model, "train.ranks=1"), resume=tmp_path / "again")
    train(config(model, "train.ranks=1"), resume=tmp_path / "again", anyway=True)
    assert near(tmp_path / "again", whole, 4)


@pytest.mark.long
def test_adapters_are_learned_by_ranks(model, tmp_path):
    lora = ["policies.x.kind=lora", "policies.y.kind=lora", "train.steps=2", "loss.kl=0.1"]
    train(config(model, *lora), tmp_path / "two")
    train(config(model, *lora, "train.ranks=1"), tmp_path / "one")
    for mine, theirs in zip(untimed(tmp_path / "two"), untimed(tmp_path / "one"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-3)


@pytest.mark.long
def test_a_rank_that_is_killed_stops_the_run_which_goes_on_from_its_checkpoint(whole, model, tmp_path):
    def kill(line):
        if line["step"] == 2:
            ranks()[1].send_signal(signal.SIGKILL)

    with pytest.raises(
        UpdateError, match=r"rank [01] of the learner has ended, with exit code .*; go on with --resume"
    ):
        train(config(model), tmp_path / "run", trackers=[Hears(kill)])
    assert ranks() == []
    assert Run(tmp_path / "run").checkpoints.steps() == [0, 1], "the second step is not whole without its optimizer"
    train(config(model), resume=tmp_path / "run")
    assert near(tmp_path / "run", whole, 4)


@pytest.mark.long
def test_ranks_end_with_a_run_that_is_killed(model, tmp_path):
    script = (
        "import os, signal, sys\n"
        "from coterie import train, load_config\n"
        "from tests.toys import Hears\n"
        "from tests.run.test_ranks import ranks\n"
        "def kill(line):\n"
        "    if line['step'] == 1:\n"
        "        print(*(rank.pid for rank in ranks()), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "train(load_config('tests/toys.py:Agree', sys.argv[2:]), sys.argv[1], trackers=[Hears(kill)])\n"
    )
    overrides = [one.replace("TINY", str(model)) for one in (*TINY, "train.ranks=2")]
    command = [sys.executable, "-c", script, str(tmp_path / "run"), *overrides]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_mistake_that_only_ranks_can_see_is_one_line(model, tmp_path, monkeypatch):
    monkeypatch.setattr("coterie.run.ranks.pick_device", lambda wanted: "cuda")
    with pytest.raises(ValueError, match=r"train.ranks = 2, but there are 0 GPUs here; a rank has one of its own"):
        train(config(model), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_rank_that_is_stopped_says_nothing_new():
    rank = _Rank(RankStart("", (), 0, 1, "", "cpu", None))
    try:
        assert rank.heard() != rank.heard()
        process = psutil.Process(rank._process.pid)
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert rank.heard() == rank.heard()
    finally:
        rank.kill()
        rank.end()
