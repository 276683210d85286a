"""Runs: exact resume, whole files, and what is refused."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from coterie import evaluate, load, load_config, train
from coterie.algorithms.at_grpo import ATGRPO
from coterie.config.settings import Config
from coterie.errors import CheckpointError, ConfigError, CoterieError
from coterie.kernel.cursor import PlayBug
from coterie.kernel.team import route
from coterie.kernel.tracker import Tracker
from coterie.learning.learner import LocalLearner, Totals
from coterie.models.load import save_model
from coterie.run import loaded
from coterie.run.exactness import _source
from coterie.run.folder import Run
from coterie.run.loaded import Loaded
from coterie.run.records import Progress
from coterie.run.rollout import task_index
from coterie.run.weights import _named
from tests.runs import cut_back, untimed, weights
from tests.toys import Agree, Hears, Toy, tiny

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_an_algorithm_remembers_is_in_every_checkpoint_and_goes_on(model, tmp_path):
    settings = config(model, "algorithm.name=rae", "algorithm.num_generations=2")
    train(settings, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    cut_back(tmp_path / "again", 2)
    train(settings, resume=tmp_path / "again")
    assert untimed(tmp_path / "again") == untimed(tmp_path / "run")
    assert weights(tmp_path / "again", 4) == weights(tmp_path / "run", 4)
    states = []
    for name in ("run", "again"):
        with Run(tmp_path / name).checkpoints.reading() as (_, progress):
            states.append(progress.credit)
    assert states[0] == states[1]
    assert set(states[0]) == {"a", "b"}
    assert untimed(tmp_path / "run")[-1]["groups/live"] > 0


@pytest.mark.long
def test_a_resume_takes_the_reference_of_the_kl_term_from_where_the_run_began(model, tmp_path):
    settings = config(model, "loss.kl=0.5", "train.steps=3")
    train(settings, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    cut_back(tmp_path / "run", 2)
    train(settings, resume=tmp_path / "run")
    assert untimed(tmp_path / "run") == untimed(tmp_path / "whole")
    assert untimed(tmp_path / "run")[-1]["policy/x/kl_k3"] > 0
    assert weights(tmp_path / "run", 3) == weights(tmp_path / "whole", 3)


@pytest.mark.slow
def test_checkpoints_are_saved_by_time_too_and_change_nothing_else(model, tmp_path):
    sets = ["train.steps=3", "train.checkpoint_every=100", "train.keep_checkpoints=100", "train.eval_every=100"]
    seldom, often = (
        train(config(model, *sets, f"train.checkpoint_minutes={minutes}"), tmp_path / str(minutes))
        for minutes in (100, 1e-9)
    )
    assert seldom.checkpoints.steps() == [0, 3]
    assert often.checkpoints.steps() == [0, 1, 2, 3]
    last = [{key: value for key, value in run.metrics()[-1].items() if not key.startswith("time/")}
            for run in (seldom, often)]  # fmt: skip
    assert last[0] == last[1]


@pytest.mark.slow
def test_tasks_are_counted_before_some_are_chosen(model, tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(ATGRPO, "select", lambda self, found, rng: found[:1])
    monkeypatch.setattr(
        "coterie.run.train.route", lambda *args, tasks: counted.append(tasks) or route(*args, tasks=tasks)
    )
    train(config(model, "train.steps=1"), tmp_path / "run")
    assert counted == [3]


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_and_other_seeds_do_not(whole, model, tmp_path):
    train(config(model), tmp_path / "same")
    train(config(model, "train.seed=1"), tmp_path / "other")
    assert untimed(tmp_path / "same") == untimed(whole)
    assert weights(tmp_path / "same", 4) == weights(whole, 4)
    assert weights(tmp_path / "other", 4) != weights(whole, 4)


def test_policies_have_ordinary_folders_and_learn_apart(whole):
    run = load(whole, 4)
    assert set(run.models.policies) == {"x", "y"}
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
    with Run(whole).checkpoints.reading() as (_, progress):
        pass
    successes = {line["step"]: line["validation/success"] for line in untimed(whole) if "validation/success" in line}
    assert progress.best_success == max(successes.values())
    assert progress.best_step == max(step for step, success in successes.items() if success == progress.best_success)


@pytest.mark.slow
def test_the_teams_of_a_headline_are_in_memory_one_at_a_time(whole, monkeypatch):
    there: list[weakref.ref[Loaded]] = []

    def counted(*args) -> Loaded:
        team = load(*args)  # it collects what was let go
        assert not any(other() for other in there)
        there.append(weakref.ref(team))
        return team

    monkeypatch.setattr(loaded, "load", counted)
    loaded.headline(Run(whole))
    assert len(there) == 2


def test_retention_keeps_the_start_the_best_and_the_latest(model, tmp_path):
    run = train(config(model, "train.keep_checkpoints=1"), tmp_path / "run")
    with run.checkpoints.reading() as (_, progress):
        pass
    assert set(run.checkpoints.steps()) == {0, progress.best_step, 4}


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


def damage_list(folder: Path) -> None:
    (folder / "manifest.json").write_text("[1, 2]")


def damage_empty(folder: Path) -> None:
    """Nothing listed would be nothing checked."""
    (folder / "manifest.json").write_text("{}")


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_remove, damage_manifest, damage_list, damage_empty])
def test_a_damaged_checkpoint_is_refused_with_a_way_on(whole, model, tmp_path, damage):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 3)
    damage(Run(folder).checkpoints.path(3))
    before = sorted((file, file.stat().st_size) for file in folder.rglob("*") if file.is_file())
    with pytest.raises(CheckpointError, match="go on from step 2 after: mv ") as caught:
        train(config(model), resume=folder)
    assert "\n" not in str(caught.value)
    assert sorted((file, file.stat().st_size) for file in folder.rglob("*") if file.is_file()) == before


@pytest.mark.slow
def test_names_that_are_not_ours_are_passed_over(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 3)
    shutil.copytree(folder / "checkpoints/step-00003", folder / "checkpoints/step-00003-backup")
    shutil.copytree(folder / "checkpoints/step-00003", folder / "checkpoints/step-latest")
    shutil.copy(folder / "episodes/step-00001.jsonl.gz", folder / "episodes/step-00001 (copy).jsonl.gz")
    (folder / "episodes/step-x.jsonl.gz").write_text("mine")
    assert Run(folder).checkpoints.steps() == [0, 1, 2, 3]
    assert Run(folder).saved_episodes() == [1, 2, 3, 4]
    train(config(model), resume=folder)
    assert load(folder).evaluate(tasks=3).tasks == 3
    assert (folder / "checkpoints/step-00003-backup").is_dir()
    assert (folder / "episodes/step-x.jsonl.gz").read_text() == "mine"


def test_a_damaged_line_of_metrics_and_a_cut_about_are_one_line(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join([lines[0], '{"step": 1, "gro\n', *lines[2:]]))
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl:2 is damaged.* remove the line"):
        Run(folder).metrics()
    shutil.copy(whole / "metrics.jsonl", folder)
    for text in ('{"versions": {"tor', "[]"):
        (folder / "about.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"about\.json is missing or damaged"):
            train(config(model), resume=folder)


def test_a_lock_that_cannot_be_written_is_one_line(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "lock").unlink()
    (folder / "lock").mkdir()  # for root, too, nothing that can be opened to write
    with pytest.raises(CheckpointError, match=r"lock cannot be written: .*; make the folder writable"):
        train(config(model), resume=folder)


@pytest.mark.slow
def test_a_checkpoint_that_is_read_is_not_pruned_until_the_next_save(model, tmp_path):
    run = train(config(model, "train.steps=2"), tmp_path / "run")

    def save(step: int) -> None:
        run.checkpoints.save(Progress(step=step), lambda folder: (folder / "weights").write_text(str(step)), keep=1)

    with run.checkpoints.reading(1) as (folder, _):
        save(3)
        assert folder.is_dir()
        assert run.checkpoints.steps() == [0, 1, 3]
    save(4)
    assert run.checkpoints.steps() == [0, 4]


@pytest.mark.slow
def test_reading_goes_on_while_checkpoints_are_replaced(model, tmp_path):
    run = train(config(model, "train.steps=1"), tmp_path / "run")
    stop = threading.Event()

    def write() -> None:
        step = 2
        while not stop.is_set():
            run.checkpoints.save(Progress(step=step, best_step=step), lambda folder: None, keep=1)
            step += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for wanted in ["best", "latest"] * 40:
            with run.checkpoints.reading(wanted) as (folder, progress):
                time.sleep(0.002)
                assert f"step-{progress.step:05d}" == folder.name
                assert (folder / "progress.json").exists()
    finally:
        stop.set()
        writer.join()


@pytest.mark.slow
def test_a_checkpoint_that_is_replaced_is_there_at_any_moment(whole, model, tmp_path, monkeypatch):
    """A step saved before its validation is saved again after it; killed between the two renames, it is put back."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 2)
    run = Run(folder)
    rename, seen = Path.rename, []

    def killed(path, target):
        if seen:
            raise KeyboardInterrupt
        seen.append(target)
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            run.checkpoints.save(Progress(step=2), lambda aside: (aside / "weights").write_text("new"), keep=9)
    assert run.checkpoints.steps() == [0, 1]
    train(config(model), resume=folder)
    assert untimed(folder) == untimed(whole)
    assert weights(folder, 4) == weights(whole, 4)
    assert not [path for path in (folder / "checkpoints").iterdir() if path.name.startswith(".replaced")]


@pytest.mark.slow
def test_a_run_that_died_before_its_first_checkpoint_begins_again(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(CheckpointError, match="has made 4 steps, and its checkpoints are gone"):
        train(config(model), resume=folder)
    first = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (folder / "metrics.jsonl").write_text(first)
    train(config(model), resume=folder)
    assert untimed(folder) == untimed(whole)
    assert weights(folder, 4) == weights(whole, 4)


@pytest.mark.slow
def test_a_run_goes_on_from_python_with_its_own_config(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 3)
    run = train(resume=folder)
    assert repr(run) == f"Run({str(folder)!r})"
    assert weights(folder, 4) == weights(whole, 4)
    with pytest.raises(ConfigError, match="say what to train: settings, or a run to resume"):
        train()
    assert repr(load(run, 3)) == f"<the team of {run.folder} at step 3>"
    assert evaluate(run, "validation", tasks=2) == evaluate(folder, "validation", tasks=2)


@pytest.mark.slow
def test_what_a_run_began_with_may_go_and_it_still_plays(model, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    settings = load_config("tests/toys.py:Agree", [one.replace("TINY", str(tmp_path / "m")) for one in TINY])
    run = train(settings, tmp_path / "run")
    before = evaluate(run, "validation", tasks=5)
    shutil.rmtree(tmp_path / "m")
    assert evaluate(run, "validation", tasks=5) == before
    with pytest.raises(ConfigError, match=r"policies\.x\.model = '.*/m': this folder does not exist; put it back"):
        train(resume=run.folder)


@pytest.mark.slow
def test_a_finished_run_can_be_given_more_steps(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    train(config(model, "train.steps=6"), resume=folder)
    assert [line["step"] for line in untimed(folder)] == [0, 1, 2, 3, 4, 5, 6]
    assert untimed(folder)[:5] == untimed(whole)
    assert Run(folder).config.train.steps == 6
    assert json.loads((folder / "about.json").read_text())["steps_changed"] == [{"step": 4, "from": 4, "to": 6}]
    with pytest.raises(CheckpointError, match=r"train\.steps = 5, but .* has made 6"):
        train(config(model, "train.steps=5"), resume=folder)


# What exactness rests on -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bf16", "amx", "own"), [(False, False, ""), (True, False, " AVX512_BF16"), (True, True, " AVX512_BF16 AMX")]
)
def test_in_bfloat16_a_processor_is_told_by_what_it_multiplies_with(monkeypatch, bf16, amx, own):
    """With it and without, sums of products are rounded otherwise."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    plain = f"cpu {torch.backends.cpu.get_cpu_capability()}"
    assert _named(torch.device("cpu"), torch.float32) == plain
    assert _named(torch.device("cpu"), torch.bfloat16) == f"{plain}{own}"


@pytest.mark.long
def test_another_number_of_threads_is_refused_and_recorded_where_one_goes_on_anyway(whole, model, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 3)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        told = f"run with threads {threads}, here {threads + 1}; set OMP_NUM_THREADS to that number, or .* --anyway"
        with pytest.raises(CheckpointError, match=told):
            train(config(model), resume=folder)
        train(config(model), resume=folder, anyway=True)
    finally:
        torch.set_num_threads(threads)
    about = json.loads((folder / "about.json").read_text())
    differs = {"threads": [str(threads), str(threads + 1)]}
    assert about["went_on_anyway"] == [{"step": 3, "differs": differs}]
    assert about["exact"]["threads"] == str(threads + 1)


@pytest.mark.slow
def test_an_environment_or_a_model_that_has_changed_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, tmp_path / "m")
    mine = (Path(__file__).parents[1] / "toys.py").read_text()
    (tmp_path / "mine.py").write_text(mine)
    overrides = [one.replace("TINY", str(tmp_path / "m")) for one in TINY]

    def settings() -> Config:
        return load_config("mine.py:Agree", overrides)

    train(settings(), tmp_path / "run")
    cut_back(tmp_path / "run", 3)
    (tmp_path / "mine.py").write_text(mine + "\n# a remark\n")
    with pytest.raises(
        CheckpointError, match=r"environment \(.*mine\.py:Agree\) \w{12}, here \w{12}; restore its file"
    ):
        train(settings(), resume=tmp_path / "run")
    (tmp_path / "mine.py").write_text(mine)
    save_model(tiny(7), tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"policy x \w{12}, here \w{12}; policy y .*; restore that model, or"):
        train(settings(), resume=tmp_path / "run")


@pytest.mark.slow
def test_what_decides_the_numbers_is_in_the_comparison(model, tmp_path, monkeypatch):
    """An algorithm of one's own, a module that an environment imports, a line of the run's config, a model's shape."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_helper.py").write_text("SIGN = 1.0\n")
    (tmp_path / "mine.py").write_text(
        "import my_helper\nfrom tests.toys import Agree as Theirs\n\n\nclass Agree(Theirs):\n    pass\n"
    )
    (tmp_path / "algo.py").write_text(
        "from coterie.algorithms.at_grpo import ATGRPO\n\n\nclass Mine(ATGRPO):\n    pass\n"
    )
    shutil.copytree(model, tmp_path / "m")
    overrides = [one.replace("TINY", str(tmp_path / "m")) for one in (*TINY, "algorithm.name=algo.py:Mine")]

    def go(**where) -> None:
        train(load_config("mine.py:Agree", overrides), **where)

    go(out=tmp_path / "run")
    cut_back(tmp_path / "run", 3)
    changes = {
        "my_helper.py": ("SIGN = 1.0", "SIGN = -1.0", "environment"),
        "algo.py": ("    pass", "    'Another.'", "algorithm"),
        "m/config.json": ('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-02', "policy x"),
    }
    for name, (before, after, told) in changes.items():
        file = tmp_path / name
        text = file.read_text()
        assert before in text, name
        file.write_text(text.replace(before, after))
        with pytest.raises(CheckpointError, match=rf"run with .*{told}( \(.*\))? \w{{12}}, here"):
            go(resume=tmp_path / "run")
        file.write_text(text)
    settings = tmp_path / "run/config.toml"
    settings.write_text(settings.read_text().replace("lr = 0.01", "lr = 0.02"))
    with pytest.raises(CheckpointError, match=r"config \w{12}, here \w{12}; restore config\.toml"):
        train(load_config(settings), resume=tmp_path / "run")


def test_files_that_settings_name_belong_to_the_environment(tmp_path):
    (tmp_path / "tasks.jsonl").write_text("one")
    world = Listed(tasks=str(tmp_path / "tasks.jsonl"))
    before = _source(world)
    assert _source(Listed(tasks=str(tmp_path / "tasks.jsonl"))) == before
    (tmp_path / "tasks.jsonl").write_text("two")
    assert _source(world) != before


class Listed(Toy):
    tasks: str = ""


def test_a_half_written_checkpoint_is_not_seen(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "checkpoints/.step-00009/policies").mkdir(parents=True)
    assert Run(folder).checkpoints.steps() == [0, 1, 2, 3, 4]


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
        (lambda folder: None, "this folder does not exist; put it back"),
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_resume(whole, model, tmp_path):
    def press(line):
        if line["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(
        KeyboardInterrupt, match=r"after step ([23]); saved as of step \1; go on with: coterie train --resume"
    ):
        train(config(model), tmp_path / "run", trackers=[Hears(press)])
    train(config(model), resume=tmp_path / "run")
    assert untimed(tmp_path / "run") == untimed(whole)
    assert weights(tmp_path / "run", 4) == weights(whole, 4)


@pytest.mark.slow
def test_a_killed_run_loses_nothing_but_the_work_since_its_checkpoint(whole, model, tmp_path):
    folder = tmp_path / "run"
    script = (
        "import os, signal, sys\n"
        "from coterie import train, load_config\n"
        "from tests.toys import Hears\n"
        "def kill(line):\n"
        "    if line['step'] == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train(load_config('tests/toys.py:Agree', sys.argv[2:]), sys.argv[1], trackers=[Hears(kill)])\n"
    )
    overrides = [one.replace("TINY", str(model)) for one in TINY]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as the tests: sums in another order differ in the last bit
    command = [sys.executable, "-c", script, str(folder), *overrides]
    done = subprocess.run(command, check=False, capture_output=True, env=one_thread)
    assert done.returncode == -signal.SIGKILL
    assert Run(folder).checkpoints.steps() == [0, 1, 2]
    train(config(model), resume=folder)
    assert untimed(folder) == untimed(whole)
    assert weights(folder, 4) == weights(whole, 4)


def not_finite() -> Totals:
    totals = Totals()
    totals.loss = float("nan")
    return totals


def test_a_nan_stops_the_run_with_step_policy_and_group_and_saves_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setattr(LocalLearner, "accumulate", lambda *_: not_finite())
    with pytest.raises(CoterieError, match=r"step 1: the update of policy 'x' is not finite, in group train-"):
        train(config(model), tmp_path / "run")
    assert Run(tmp_path / "run").checkpoints.steps() == [0]


def test_advantages_that_are_not_finite_stop_the_run_before_anything_is_trained(model, tmp_path, monkeypatch):
    monkeypatch.setattr(ATGRPO, "advantages", lambda self, group: (float("nan"),) * len(group.members))
    with pytest.raises(CoterieError, match=r"ATGRPO credits group train-\S+ with \(nan, .*not finite"):
        train(config(model), tmp_path / "run")
    assert Run(tmp_path / "run").checkpoints.steps() == [0]


@pytest.mark.slow
@pytest.mark.parametrize(("updates", "saved"), [(1, [0, 2]), (2, [0])])
def test_steps_before_a_nan_are_saved_and_what_spoilt_it_is_kept(model, tmp_path, monkeypatch, updates, saved):
    sums, gradient, run = LocalLearner.accumulate, LocalLearner._gradient, Run(tmp_path / "run")
    spoilt = [False]

    def spoil(self, name, rows, number):
        spoilt[0] = run.metrics()[-1]["step"] == 2 and number == updates - 1
        return gradient(self, name, rows, number)

    monkeypatch.setattr(LocalLearner, "_gradient", spoil)
    monkeypatch.setattr(LocalLearner, "accumulate", lambda *args: not_finite() if spoilt[0] else sums(*args))
    sets = ["train.checkpoint_every=50", "train.eval_every=50", "train.tasks_per_step=8"]
    with pytest.raises(CoterieError, match=r"^step 3: .* look at what spoilt it with: coterie play .* --step 3 --tree"):
        train(config(model, *sets, f"optimizer.updates_per_step={updates}"), tmp_path / "run")
    assert run.checkpoints.steps() == saved
    assert run.episodes(3)


class Buggy(Agree):
    async def play(self, task, scene):
        await scene.ask("a", "pick", max_tokens=1)
        if task.number > 12:
            raise LookupError("by design")


class Panic(BaseException):
    """What a library in another language raises."""


@pytest.mark.slow
def test_what_a_tracker_raises_costs_no_step(model, tmp_path, capfd):
    def hear(line, raised):
        if line["step"] == 2:
            raise raised("no more")

    settings = config(model, "train.checkpoint_every=50", "train.eval_every=50")
    train(settings, tmp_path / "told", trackers=[Hears(partial(hear, raised=ValueError))])
    assert "tracker '0' (Hears) failed, and hears no more of this run: ValueError: no more" in capfd.readouterr().err
    train(settings, tmp_path / "left", trackers=[Hears(partial(hear, raised=SystemExit))])
    assert "tracker '0' (Hears) failed, and hears no more of this run: SystemExit" in capfd.readouterr().err
    with pytest.raises(Panic):
        train(settings, tmp_path / "run", trackers=[Hears(partial(hear, raised=Panic))])
    assert Run(tmp_path / "run").checkpoints.steps() == [0, 2]
    assert [line["step"] for line in Run(tmp_path / "run").metrics()] == [0, 1, 2]


@pytest.mark.slow
def test_a_tracker_that_changes_its_line_changes_nobody_elses(model, tmp_path):
    heard: list[int] = []
    train(config(model), tmp_path / "run", trackers=[Hears(dict.clear), Hears(lambda line: heard.append(line["step"]))])
    assert heard == [line["step"] for line in Run(tmp_path / "run").metrics()]


def test_a_panic_in_play_is_a_bug_like_any_other(model, tmp_path):
    class Panicking(Agree):
        async def play(self, task, scene):
            await super().play(task, scene)
            if task.split == "train" and len(Run(tmp_path / "run").metrics()) > 1:
                raise Panic("in Rust")

    settings = replace(config(model, "train.checkpoint_every=50", "train.eval_every=50"), environment=Panicking())
    with pytest.raises(PlayBug, match="raised Panic: in Rust"):
        train(settings, tmp_path / "run")
    assert Run(tmp_path / "run").checkpoints.steps() == [0, 1]
    with pytest.raises(CheckpointError, match="has no checkpoint of step 7; there are 0, 1"):
        load(tmp_path / "run", 7)
    with pytest.raises(CheckpointError, match="step = '1' is no whole number"):
        load(tmp_path / "run", "1")


@pytest.mark.slow
def test_a_bug_in_play_stops_the_run_and_can_be_played_again(model, tmp_path):
    overrides = [one.replace("TINY", str(model)) for one in TINY]
    with pytest.raises(PlayBug, match=r"LookupError: by design \(.*test_runs.py:\d+\)") as caught:
        train(load_config("tests/run/test_runs.py:Buggy", overrides), tmp_path / "run")
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


def test_a_rollout_that_an_earlier_version_saved_is_shown_alike(whole):
    """Groups had no point of their own then: it stood in their path alone."""
    file = Run(whole).folder / "episodes" / "step-00004.jsonl.gz"
    saved = file.read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(saved).splitlines()]
    for group in (group for row in rows for group in row["collected"]["groups"]):
        assert group.pop("point") == int(group["key"][2].rpartition("@")[2])
        del group["history"]
    now = Run(whole).episodes(4)
    try:
        file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
        assert Run(whole).episodes(4) == now
    finally:
        file.write_bytes(saved)


def test_about_says_versions_seed_and_hardware(whole):
    about = json.loads((whole / "about.json").read_text())
    assert about["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert about["seed"] == 0


@pytest.mark.slow
def test_a_tracker_that_failed_hears_no_more_and_one_that_begins_late_is_told_what_was(model, tmp_path):
    heard: list[tuple[str, float]] = []

    class Notes(Tracker):
        """Writes down what it is told, and may fail of it."""

        def __init__(self, name: str, fails: bool) -> None:
            super().__init__()
            self.name, self.fails = name, fails

        def begin(self, folder, tables, lines):
            heard.append((f"{self.name} begins", len(lines)))

        def log(self, line):
            heard.append((self.name, line["step"]))
            if self.fails:
                raise ValueError("no more")

        def end(self):
            heard.append((f"{self.name} ends", 0))

    run = train(config(model, "train.steps=2"), tmp_path / "run", trackers=[Notes("good", False), Notes("bad", True)])
    assert [each for each in heard if "bad" in each[0]] == [("bad begins", 0), ("bad", 0)]
    assert heard[-1] == ("good ends", 0)
    heard.clear()
    longer = replace(run.config, train=run.config.train.model_copy(update={"steps": 3}))
    train(longer, resume=run.folder, trackers=[Notes("good", False)])
    assert heard[0] == ("good begins", 3)
