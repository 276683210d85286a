"""Runs: exact resume, whole files, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coterie import load, load_config, train
from coterie.cursor import PlayBug
from coterie.errors import CheckpointError, ConfigError, CoterieError
from coterie.models import save_model
from coterie.runs import Run
from coterie.train import task_index
from tests.toys import Agree, Toy, tiny

TINY = [
    "policies.x.model=TINY",
    "policies.y.model=TINY",
    "team.a=x",
    "team.b=y",
    "train.steps=4",
    "train.tasks_per_step=3",
    "train.eval_tasks=5",
    "train.eval_every=2",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
    "train.episodes_every=1",
    "algorithm.num_generations=4",
    "optimizer.lr=1e-2",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


def config(model: Path, *more: str):
    return load_config("tests/toys.py:Agree", [one.replace("TINY", str(model)) for one in (*TINY, *more)])


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(config(model), folder)
    return folder


def untimed(folder: Path) -> list[dict]:
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")} for line in Run(folder).metrics()
    ]


def weights(folder: Path, step: int) -> dict[str, bytes]:
    checkpoint = Run(folder).checkpoint(step)
    return {str(file.relative_to(checkpoint)): file.read_bytes() for file in checkpoint.rglob("*.safetensors")}


def cut_back(folder: Path, step: int) -> None:
    """As if the run had been killed: later checkpoints are gone, later lines and episodes are there."""
    for later in Run(folder).checkpoints():
        if later > step:
            shutil.rmtree(Run(folder).checkpoint(later))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "half a li')


@pytest.mark.parametrize("step", [0, 1, 3])
def test_resume_at_step_k_equals_an_uninterrupted_run_bit_for_bit(whole, model, tmp_path, step):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, step)
    train(config(model), resume=folder)
    assert untimed(folder) == untimed(whole)
    assert weights(folder, 4) == weights(whole, 4)
    for later in range(1, 5):
        assert Run(folder).episodes(later) == Run(whole).episodes(later)
    left, right = (
        torch.load(one / "checkpoints/step-00004/optimizers/x.pt", weights_only=True) for one in (folder, whole)
    )
    assert str(left) == str(right)


def test_equal_seeds_give_equal_runs_and_other_seeds_do_not(whole, model, tmp_path):
    train(config(model), tmp_path / "same")
    train(config(model, "train.seed=1"), tmp_path / "other")
    assert untimed(tmp_path / "same") == untimed(whole)
    assert weights(tmp_path / "same", 4) == weights(whole, 4)
    assert weights(tmp_path / "other", 4) != weights(whole, 4)


def test_policies_have_ordinary_folders_and_learn_apart(whole):
    run = load(whole, 4)
    assert set(run.crew.models) == {"x", "y"}
    files = {file.name for file in (whole / "checkpoints/step-00004/policies/x").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert weights(whole, 4)["policies/x/model.safetensors"] != weights(whole, 4)["policies/y/model.safetensors"]


def test_metrics_count_the_budget(whole):
    lines = untimed(whole)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    for name in ("prompt_tokens", "sampled_tokens", "engine_calls"):
        counts = [line[f"budget/{name}"] for line in lines[1:]]
        assert counts == sorted(counts)
        assert counts[0] > 0
    # a step: 3 tasks x (4 proposals + 4 continuations + 4 answers) replies of one token
    assert lines[1]["budget/replies"] == lines[1]["budget/sampled_tokens"] == 3 * 12
    assert lines[1]["budget/engine_calls"] == 3
    assert lines[1]["groups/total"] == 6


def test_the_best_checkpoint_is_chosen_by_validation(whole):
    _, progress = Run(whole).read_checkpoint()
    successes = {line["step"]: line["validation/success"] for line in untimed(whole) if "validation/success" in line}
    assert progress.best_success == max(successes.values())
    assert progress.best_step == min(step for step, success in successes.items() if success == progress.best_success)


def test_retention_keeps_the_start_the_best_and_the_latest(model, tmp_path):
    run = train(config(model, "train.keep_checkpoints=1"), tmp_path / "run")
    _, progress = run.read_checkpoint()
    assert set(run.checkpoints()) == {0, progress.best_step, 4}


def damage_cut(folder: Path) -> None:
    file = folder / "policies/x/model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def damage_flip(folder: Path) -> None:
    file = folder / "optimizers/y.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def damage_remove(folder: Path) -> None:
    (folder / "progress.json").unlink()


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"policies')


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_remove, damage_manifest])
def test_a_damaged_checkpoint_is_refused_with_a_way_on(whole, model, tmp_path, damage):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 3)
    damage(Run(folder).checkpoint(3))
    before = sorted((file, file.stat().st_size) for file in folder.rglob("*") if file.is_file())
    with pytest.raises(CheckpointError, match="to go on from step 2") as caught:
        train(config(model), resume=folder)
    assert "\n" not in str(caught.value)
    assert sorted((file, file.stat().st_size) for file in folder.rglob("*") if file.is_file()) == before


def test_a_half_written_checkpoint_is_not_seen(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "checkpoints/.step-00009/policies").mkdir(parents=True)
    assert Run(folder).checkpoints() == [0, 1, 2, 3, 4]


def test_a_run_folder_that_exists_is_refused(whole, model):
    with pytest.raises(CheckpointError, match=f"{whole} exists; .* --resume"):
        train(config(model), whole)


def test_a_resume_with_another_config_names_the_setting(whole, model):
    with pytest.raises(CheckpointError, match=r"was run with optimizer.lr = 0.01, not 0.5"):
        train(config(model, "optimizer.lr=0.5"), resume=whole)


def test_a_folder_that_is_no_run_is_refused(model, tmp_path):
    with pytest.raises(CheckpointError, match="not a run folder"):
        train(config(model), resume=tmp_path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: None, "no causal language model could be loaded"),
        (lambda folder: folder.mkdir(), "config.json is missing"),
        (lambda folder: (folder.mkdir(), (folder / "config.json").write_text("{}")), "no causal language model"),
    ],
)
def test_a_model_that_is_not_there_is_one_line_and_writes_nothing(model, tmp_path, make, says):
    make(tmp_path / "m")
    with pytest.raises(ConfigError, match=says) as caught:
        train(config(model, f"policies.x.model={tmp_path}/m"), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert "policies.x.model" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_without_a_chat_template_is_refused(model, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m/chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        train(config(model, f"policies.x.model={tmp_path}/m"), tmp_path / "run")


def test_a_prompt_longer_than_the_context_is_refused(model, tmp_path):
    save_model(tiny(context=8), tmp_path / "short")
    with pytest.raises(ConfigError, match="has a context of 8"):
        train(config(model, f"policies.x.model={tmp_path}/short"), tmp_path / "run")


def test_a_second_process_on_one_run_is_refused(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 1)
    before = (folder / "metrics.jsonl").read_text()
    with Run(folder).locked(), pytest.raises(CheckpointError, match="in use by another process"):
        train(config(model), resume=folder)
    assert (folder / "metrics.jsonl").read_text() == before


def test_a_full_disk_is_one_line_and_leaves_no_half_checkpoint(model, tmp_path, monkeypatch):
    def full(state, path):
        raise RuntimeError("PytorchStreamWriter failed writing file: no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"could not be written: PytorchStreamWriter.*make room and go on"):
        train(config(model), tmp_path / "run")
    assert list((tmp_path / "run/checkpoints").iterdir()) == []


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_resume(whole, model, tmp_path):
    def press(run, config, line):
        if line["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"after step [23]; go on with: coterie train --resume"):
        train(config(model), tmp_path / "run", watch=press)
    train(config(model), resume=tmp_path / "run")
    assert untimed(tmp_path / "run") == untimed(whole)
    assert weights(tmp_path / "run", 4) == weights(whole, 4)


def test_a_killed_run_loses_nothing_but_the_work_since_its_checkpoint(whole, model, tmp_path):
    folder = tmp_path / "run"
    script = (
        "import os, signal, sys\n"
        "from coterie import train, load_config\n"
        "def kill(run, config, line):\n"
        "    if line['step'] == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train(load_config('tests/toys.py:Agree', sys.argv[2:]), sys.argv[1], watch=kill)\n"
    )
    overrides = [one.replace("TINY", str(model)) for one in TINY]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as the tests: sums in another order differ in the last bit
    command = [sys.executable, "-c", script, str(folder), *overrides]
    done = subprocess.run(command, check=False, capture_output=True, env=one_thread)
    assert done.returncode == -signal.SIGKILL
    assert Run(folder).checkpoints() == [0, 1, 2]
    train(config(model), resume=folder)
    assert untimed(folder) == untimed(whole)
    assert weights(folder, 4) == weights(whole, 4)


def test_a_nan_stops_the_run_with_step_policy_and_group_and_saves_nothing(model, tmp_path, monkeypatch):
    from coterie.algorithms.at_grpo import ATGRPO

    monkeypatch.setattr(ATGRPO, "advantages", lambda self, group: (float("nan"),) * len(group.members))
    with pytest.raises(CoterieError, match=r"step 0: the update of policy 'x' is not finite, in group train-"):
        train(config(model), tmp_path / "run")
    assert Run(tmp_path / "run").checkpoints() == [0]


class Buggy(Agree):
    async def play(self, task, scene):
        await scene.ask("a", "pick", max_tokens=1)
        if task.number > 12:
            raise LookupError("by design")


def test_a_bug_in_play_stops_the_run_and_can_be_played_again(model, tmp_path):
    overrides = [one.replace("TINY", str(model)) for one in TINY]
    with pytest.raises(PlayBug, match="LookupError: by design") as caught:
        train(load_config("tests/test_runs.py:Buggy", overrides), tmp_path / "run")
    assert f"coterie play {tmp_path / 'run'} --bug" in caught.value.__notes__[0]
    with pytest.raises(PlayBug, match="LookupError: by design"):
        Run(tmp_path / "run").replay_bug()


class Few(Toy):
    def count(self, split):
        return 10


def test_epochs_are_shuffled_and_no_step_holds_a_task_twice():
    order = [task_index(Few(), 0, position, 3) for position in range(36)]
    epochs = [order[start : start + 9] for start in range(0, 36, 9)]
    assert all(len(set(epoch)) == 9 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert order != [task_index(Few(), 1, position, 3) for position in range(36)]


def test_an_environment_without_a_count_gets_fresh_tasks_by_seed():
    assert [task_index(Toy(), 0, position, 4) for position in range(3)] == [0, 1, 2]
    assert not {task_index(Toy(), 1, position, 4) for position in range(99)} & set(range(10**6))


def test_saved_episodes_hold_what_a_tree_needs(whole):
    for played in Run(whole).episodes(4):
        assert len(played.advantages) == len(played.collected.groups)
        assert played.collected.logs[0].task == f"train-{played.index}"


def test_about_says_versions_seed_and_hardware(whole):
    about = json.loads((whole / "about.json").read_text())
    assert about["versions"]["torch"] == torch.__version__
    assert about["seed"] == 0
