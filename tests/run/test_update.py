"""One update made again from what a run has saved: equal to the bit, or said to be another."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coterie import load_config, train, update
from coterie.cli import app
from coterie.errors import CheckpointError
from coterie.models.load import load_model, save_model
from coterie.models.threads import Threads
from coterie.run.files import fingerprint_of
from coterie.run.folder import Run
from tests.runs import weights
from tests.toys import tiny

SETS = [
    "team.a=x", "team.b=y", "train.steps=2", "train.tasks_per_step=4", "train.eval_tasks=4", "train.eval_every=9",
    "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes_every=1", "optimizer.lr=1e-2",
]  # fmt: skip
WAYS = {
    "at_grpo": ["algorithm.num_generations=3"],
    "two updates a step": ["algorithm.num_generations=3", "optimizer.updates_per_step=2", "loss.kl=0.1"],
    "gspo": ["algorithm.num_generations=3", "loss.name=gspo", "optimizer.updates_per_step=2"],
    "long replies": ["algorithm.num_generations=3", "loss.overlong_from=2", "loss.overlong_buffer=4"],
    "gigpo": ["algorithm.name=gigpo", "algorithm.num_generations=4"],
    "hgpo": ["algorithm.name=gigpo", "algorithm.num_generations=4", "algorithm.history=1"],
    "rae": ["algorithm.name=rae"],
    "marshal": ["algorithm.name=marshal", "algorithm.num_generations=8"],
    "main_sub_grpo": ["algorithm.name=main_sub_grpo", "algorithm.num_generations=3"],
    "wideseek": ["algorithm.name=wideseek", "algorithm.num_generations=3"],
    "magrpo": ["algorithm.name=magrpo", "algorithm.num_generations=2"],
    "joyagents, chosen": ["algorithm.name=joyagents", "algorithm.selection=raw_var", "algorithm.top_k=3"],
    "chosen, a mean over tokens": [
        "algorithm.name=joyagents",
        "algorithm.selection=raw_var",
        "algorithm.top_k=3",
        "loss.denominator=tokens",
    ],
    "its own rates": ["algorithm.num_generations=3", "policies.x.optimizer.lr=5e-2"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("update") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


def made(model: Path, folder: Path, *more: str, environment: str = "Agree") -> Run:
    named = [f"policies.{name}.model={model}" for name in "xy"]
    sets = [*SETS, *named, "engine.max_tokens=8", *more]
    return train(load_config(f"tests/toys.py:{environment}", sets), folder)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_runs_own_to_the_bit(model, tmp_path, way):
    run = made(model, tmp_path / "run", *WAYS[way])
    for step in (1, 2):
        found = update(run, step, tmp_path / f"out{step}")
        assert found.differs == ()
        assert found.compared == "weights and metrics"
        assert any(name.startswith("policy/x/") for name in found.metrics)
        theirs = weights(run.folder, step)
        for name, content in theirs.items():
            assert (tmp_path / f"out{step}" / name).read_bytes() == content
    assert weights(run.folder, 1) != weights(run.folder, 2)


@pytest.mark.slow
def test_where_the_run_kept_no_weights_its_metrics_are_compared(model, tmp_path):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    shutil.rmtree(run.checkpoints.path(2))
    found = update(run, 2)
    assert (found.compared, found.differs) == ("metrics", ())


@pytest.mark.slow
def test_a_run_that_was_prolonged_is_updated_with_the_rate_of_then(model, tmp_path):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    config = run.config
    train(replace(config, train=config.train.model_copy(update={"steps": 4})), resume=run.folder)
    assert [update(run, step).differs for step in (1, 2, 3, 4)] == [()] * 4


@pytest.mark.slow
def test_what_is_another_is_said(model, tmp_path):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    spoil = run.folder / "metrics.jsonl"
    lines = [json.loads(line) for line in spoil.read_text().splitlines()]
    lines[1]["policy/x/loss"] += 1.0
    spoil.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = update(run, 1)
    assert found.differs == ("policy/x/loss",)
    assert "not what the run did: policy/x/loss" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remove", "step", "message"),
    [
        (
            "checkpoints/step-00001",
            2,
            r"no checkpoint with optimizers of step 1, where step 2 began; what can be made again: 1 ",
        ),
        ("episodes/step-00002.jsonl.gz", 2, "no episodes of step 2; saved: 1"),
        ("", 3, "no episodes of step 3; saved: 1, 2"),
    ],
)
def test_what_was_not_kept_is_named(model, tmp_path, remove, step, message):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    if remove:
        gone = run.folder / remove
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    with pytest.raises(CheckpointError, match=message):
        update(run, step)


@pytest.mark.slow
def test_another_start_is_refused_by_name(model, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(model, own)
    run = made(own, tmp_path / "run", *WAYS["at_grpo"])
    save_model(tiny(seed=7), own)
    with pytest.raises(CheckpointError, match="cannot be made again exactly: it was run with policy x"):
        update(run, 2)


@pytest.mark.slow
def test_the_command_says_what_it_found(model, tmp_path):
    from typer.testing import CliRunner

    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    done = CliRunner().invoke(app, ["update", str(run.folder), "--step", "1", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    assert "equal to the bit to what the run did (weights and metrics compared)" in done.output
    assert load_model(str(tmp_path / "out/policies/x")).size == load_model(str(model)).size
    done = CliRunner().invoke(app, ["update", str(run.folder), "--step", "1", "--json"])
    assert json.loads(done.output)["differs"] == []


@pytest.mark.slow
def test_it_is_compared_with_the_weights_of_every_policy_and_with_all_that_the_run_logged(model, tmp_path):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    file = run.checkpoints.path(2) / "policies/y/model.safetensors"
    shutil.copy(run.checkpoints.path(1) / "policies/y/model.safetensors", file)
    manifest = run.checkpoints.path(2) / "manifest.json"
    listed = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**listed, "policies/y/model.safetensors": fingerprint_of(file)}))
    assert update(run, 2).differs == ("weights of y",)
    shutil.rmtree(run.checkpoints.path(2))
    run.save_episodes(2, [])
    found = update(run, 2)
    assert "policy/x/loss" in found.differs
    assert not found.metrics


@pytest.mark.slow
def test_another_number_of_threads_is_refused_by_name(model, tmp_path):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    about = json.loads((run.folder / "about.json").read_text())
    name = next(name for name in about["exact"] if "threads" in name)
    about["exact"][name] = "99"
    (run.folder / "about.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=f"it was run with {name} 99"):
        update(run, 2)


@pytest.mark.long
def test_steps_made_again_after_a_run_was_prolonged_are_updated_with_their_own_rate(model, tmp_path):
    run = made(model, tmp_path / "run", *WAYS["at_grpo"])
    longer = replace(run.config, train=run.config.train.model_copy(update={"steps": 4}))
    train(longer, resume=run.folder)
    for step in (2, 3, 4):
        shutil.rmtree(run.checkpoints.path(step))
    train(longer, resume=run.folder)
    assert [update(run, step).differs for step in (1, 2, 3, 4)] == [()] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("then", "now"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.long)])
def test_how_many_threads_help_changes_no_bit(then, now, tmp_path, monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        save_model(tiny(hidden=64, scale=2.0), tmp_path / "tiny")
        monkeypatch.setattr(Threads, "_measured", lambda self, rounds: then)
        run = made(tmp_path / "tiny", tmp_path / "run", *WAYS["at_grpo"])
        monkeypatch.setattr(Threads, "_measured", lambda self, rounds: now)
        assert [update(run, step).differs for step in (1, 2)] == [()] * 2
    finally:
        torch.set_num_threads(before)
