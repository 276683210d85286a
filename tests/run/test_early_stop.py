"""A run may end before its last step, says why, and goes on where it is asked to; equal checkpoints: the latest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coterie import load_config, train
from coterie.config.settings import TrainConfig
from coterie.errors import ConfigError
from coterie.kernel.cursor import PlayBug
from coterie.models.load import save_model
from coterie.run.files import set_aside
from coterie.run.folder import Run
from coterie.run.records import PROGRESS, Progress
from tests.runs import cut_back, untimed, weights
from tests.toys import Agree, parity, tiny

SETS = [
    "policies.team.model=TINY", "train.steps=9", "train.tasks_per_step=2", "train.eval_tasks=3", "train.eval_every=30",
    "train.checkpoint_every=1", "train.keep_checkpoints=99", "train.episodes_every=9", "algorithm.num_generations=2",
    "engine.max_tokens=4", "train.mute_every=0",
]  # fmt: skip


class Solved(Agree):
    """Every episode succeeds; what pays is an even token."""

    async def play(self, task, scene):
        for role in self.roles:
            reply = await scene.ask(role, "pick", max_tokens=1)
            scene.reward(role, parity(reply.text))
        scene.succeed()


class Later(Agree):
    """Raises in a task of the first step that no rehearsal plays."""

    async def play(self, task, scene):
        await super().play(task, scene)
        if task.id == "train-4":
            raise LookupError("by design")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


def config(model: Path, world: str, *more: str):
    return load_config(world, [one.replace("TINY", str(model)) for one in (*SETS, *more)])


def test_a_run_without_a_live_group_ends_after_so_many_steps_and_goes_on_with_more(model, tmp_path):
    settings = config(model, "tests/toys.py:Flat", "train.stop_dead_steps=3")
    run = train(settings, tmp_path / "run")
    lines = run.metrics()
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert "validation/success" in lines[-1], "the last step is validated"
    assert (run.checkpoints.steps()[-1], run.saved_episodes()[-1]) == (3, 3)
    with run.checkpoints.reading() as (_, progress):
        assert progress.early(settings.train) == "no group had different returns in 3 steps (train.stop_dead_steps)"
        assert progress.best_step == 3, "all validations are equal, and the latest is the best"
    shutil.copytree(run.folder, tmp_path / "again")
    cut_back(tmp_path / "again", 2)
    train(settings, resume=tmp_path / "again")
    assert untimed(tmp_path / "again") == untimed(run.folder)
    assert weights(tmp_path / "again", 3) == weights(run.folder, 3)
    train(settings, resume=run.folder)
    assert len(run.metrics()) == 4, "nothing more is asked"
    more = config(model, "tests/toys.py:Flat", "train.stop_dead_steps=3", "train.steps=12")
    train(more, resume=run.folder)
    assert [line["step"] for line in run.metrics()][-1] == 6, "and three more that teach nothing end it again"


def test_a_run_that_solves_two_validations_in_a_row_ends(model, tmp_path):
    every = ("train.eval_every=2", "train.mute_every=2", "train.mute_tasks=3", "train.steps=6")
    sets = (*every, "train.stop_when_solved=1.0")
    run = train(config(model, "tests/run/test_early_stop.py:Solved", *sets), tmp_path / "run")
    assert [line["step"] for line in run.metrics()] == [0, 1, 2]
    assert [any(key.startswith("mute/") for key in line) for line in run.metrics()] == [False, False, True]
    assert run.checkpoints.steps()[-1] == 2
    train(config(model, "tests/run/test_early_stop.py:Solved", *every), resume=run.folder)
    assert run.metrics()[-1]["step"] == 6, "without the setting it makes all steps"


def test_what_ends_a_run_is_counted_from_what_is_saved():
    solved, dead = TrainConfig(stop_when_solved=0.9), TrainConfig(stop_dead_steps=2)
    progress = Progress(step=20)
    progress.validated(0.95)
    progress.validated(0.95)
    assert not progress.early(solved), "one validation that was made again is one"
    progress.step = 40
    progress.validated(0.89)
    assert not progress.early(solved)
    progress.step = 60
    progress.validated(0.92)
    assert not progress.early(solved)
    progress.step = 80
    progress.validated(0.9)
    assert progress.early(solved) == "2 validations in a row solved 0.900 or more (train.stop_when_solved)"
    assert PROGRESS.validate_json(PROGRESS.dump_json(progress)).early(solved)
    assert not progress.early(TrainConfig())
    assert not Progress(dead_steps=1).early(dead)
    assert Progress(dead_steps=2).over(dead)


@pytest.mark.parametrize("key", ["stop_when_solved=1.0", "stop_dead_steps=5"])
def test_an_end_that_is_not_known_yet_is_refused_where_rollouts_are_played_ahead(key):
    with pytest.raises(ConfigError, match=r"before it is known whether the run ends; leave out one of the two"):
        load_config("configs/plan_path.toml", [f"train.{key}", "runtime.name=ray", "runtime.max_staleness=1"])


def test_a_first_step_that_failed_does_not_block_the_next_try_and_is_kept(model, tmp_path, capfd):
    bad = config(model, "tests/run/test_early_stop.py:Later", "train.tasks_per_step=8")
    with pytest.raises(PlayBug, match="by design"):
        train(bad, tmp_path / "run")
    assert (tmp_path / "run/failed.txt").read_text().startswith("PlayBug: play of task train-4 raised LookupError")
    good = config(model, "tests/toys.py:Agree", "train.steps=1")
    train(good, tmp_path / "run")
    assert f"failed in its first step; it is kept as {tmp_path / 'run-failed-1'}" in capfd.readouterr().err
    assert (tmp_path / "run-failed-1/bug.json").exists()
    assert Run(tmp_path / "run").metrics()[-1]["step"] == 1
    assert not (tmp_path / "run/failed.txt").exists()
    assert set_aside(tmp_path / "run") is None
