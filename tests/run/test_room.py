"""What checkpoints take of a disk: foreseen, refused before anything is written, and not taken twice."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from coterie import load_config, train
from coterie.errors import CheckpointError, ConfigError
from coterie.models.load import save_model
from coterie.report.planned import total_text
from coterie.run import train as module
from coterie.run.plan import plan
from coterie.run.records import Progress
from coterie.run.room import Room
from coterie.run.update import update
from coterie.run.weights import TeamModels
from tests.toys import tiny

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


def config(model, *more):
    sets = [f"policies.x.model={model}", f"policies.y.model={model}", "team.a=x", "team.b=y", "train.steps=5"]
    sets += ["train.tasks_per_step=3", "train.eval_tasks=4", "train.eval_every=1", "train.checkpoint_every=1"]
    return load_config("tests/toys.py:Agree", [*sets, "algorithm.num_generations=4", "optimizer.lr=1e-2", *more])


# 10 weights: 40 bytes at the start, 120 later; two latest and one that is written, and the best
def test_by_hand():
    assert Room.of([4, 6], keep=2) == Room(one=120, least=40 + 3 * 120, most=40 + 3 * 120 + 40)
    assert Room.of([10**9], keep=1).text == "checkpoints take 12 GB each, 32 GB together at the most"


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_it_is_what_the_files_take(kind, model, tmp_path):
    both = config(model, f"policies.x.kind={kind}", f"policies.y.kind={kind}")
    run = train(both, tmp_path / "run")
    folder = run.checkpoints.path(5)
    files = [*folder.rglob("*.safetensors"), *folder.glob("optimizers/*")]
    with TeamModels(both, training=True) as models:
        weights = [weight.numel() for policy in models.trained.values() for weight in policy.model.trained]
    overhead = 2_000 * len(weights)  # each tensor's name and shape, and a pickle's
    one = Room.of(weights, 2).one
    assert one <= sum(file.stat().st_size for file in files) <= one + overhead
    assert Room.of(weights, both.train.keep_checkpoints).text in total_text(plan(both), both)


def test_a_disk_that_is_too_small_is_refused_and_nothing_is_left(model, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(module, "GB", 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(9, 9, 1000))
    with pytest.raises(ConfigError, match=r"checkpoints take .* GB are free for .*run: make room, .*kind = 'lora'"):
        train(config(model), tmp_path / "new/run")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(9, 9, 10**12))
    train(config(model, "train.steps=1"), tmp_path / "new/run")
    assert "GB together at the most, of 1e+03 GB that are free" in capfd.readouterr().err


def test_a_file_that_has_not_changed_is_one_file(model, tmp_path):
    run = train(config(model, "train.keep_checkpoints=9"), tmp_path / "run")
    for name, same in {"policies/x/tokenizer.json": True, "policies/x/model.safetensors": False}.items():
        numbers = {(run.checkpoints.path(step) / name).stat().st_ino for step in range(6)}
        assert (len(numbers) == 1) is same
    (run.checkpoints.path(0) / "policies/x/tokenizer.json").unlink()
    with run.checkpoints.reading(5) as (folder, _):
        assert (folder / "policies/x/tokenizer.json").exists()


def test_a_damaged_checkpoint_is_not_shared(model, tmp_path):
    run = train(config(model, "train.steps=2"), tmp_path / "run")
    file = run.checkpoints.path(2) / "policies/x/tokenizer.json"
    file.unlink()
    file.write_text("damaged")
    with run.checkpoints.reading(1) as (sound, progress):
        progress.step = 3
        run.checkpoints.save(progress, lambda aside: shutil.copytree(sound, aside, dirs_exist_ok=True), 9)
    with run.checkpoints.reading(3):
        pass


def test_the_best_of_old_keeps_its_weights_alone_and_no_run_goes_on_from_it(model, tmp_path):
    whole, folder = train(config(model, "train.steps=6"), tmp_path / "whole"), tmp_path / "run"
    run = train(config(model, "train.steps=6"), folder)
    kept = run.checkpoints
    before = kept.path(5)
    progress = Progress(step=7, best_step=5)
    latest = shutil.copytree(kept.path(6), tmp_path / "latest")
    written = set[int]()
    for progress.step in (7, 8):
        kept.save(progress, lambda aside: shutil.copytree(latest, aside, dirs_exist_ok=True), 2)
        written.add((before / "manifest.json").stat().st_ino)
    assert len(written) == 1, "once is enough"
    assert kept.steps() == [0, 5, 7, 8]
    assert not (before / "optimizers").exists()
    assert [kept.goes_on(step) for step in kept.steps()] == [True, False, True, True]
    with kept.reading("best") as (best, told):
        assert told.step == 5
        for file in (best / "policies").rglob("*.safetensors"):
            other = whole.checkpoints.path(5) / file.relative_to(best)
            assert file.read_bytes() == other.read_bytes()
    for step in (7, 8):
        shutil.rmtree(kept.path(step))
    with pytest.raises(CheckpointError, match=r"step-00005 keeps the weights of the best step, and no optimizer"):
        train(resume=folder)
    with pytest.raises(CheckpointError, match="has no checkpoint with optimizers of step 5, where step 6 began"):
        update(folder, 6)
    (before / "progress.json").write_text("cut")
    with pytest.raises(CheckpointError, match="use --step 0 to look at another, or go on from step 0 after: mv "):
        kept.reading(5).__enter__()
