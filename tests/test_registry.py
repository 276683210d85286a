"""Names of what a user brings: files, modules of installed packages, and what those call it."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie import Environment, load_config, train
from coterie.checks.doctor import examine
from coterie.errors import ConfigError
from coterie.installed import starter_folder
from coterie.models.load import load_model, save_model
from coterie.registry import find, summary, whole_folder, whole_name
from coterie.run.folder import Run
from tests.toys import tiny

GAME = """
from coterie import Environment, Task

class Echo(Environment):
    '''Says what it heard.'''

    roles = ("a",)
    starter = "starter-echo"
    prize: float = 1.0

    def task(self, split, index):
        return Task(f"{split}-{index}", split)

    async def play(self, task, scene):
        reply = await scene.ask("a", "say", max_tokens=1)
        scene.reward("a", self.prize * (len(reply.text) % 2))
        scene.succeed()
"""
METHOD = """
from coterie.algorithms.rae import RAE

class Twice(RAE):
    '''Counts its steps.'''

    def credit(self, groups, state):
        earned, _ = super().credit(groups, {})
        return [tuple(2 * one for one in mine) for mine in earned], {"steps": state.get("steps", 0) + 1}
"""
LOOKS = """
from coterie.kernel.diagnosis import Diagnosis

def look():
    print("la la la")
    return [Diagnosis("echo", "voice", False, "hoarse", "drink water")]

def texts():
    return ["hoarse"]
"""
NAMES = """
[coterie.environments]
echo = echo_game.worlds:Echo
tally = echo_game.worlds:Echo
damaged = echo_game.broken:Echo
nowhere = not.there:Echo
quits = echo_quits.worlds:Echo

[coterie.algorithms]
twice = echo_game.methods:Twice

[coterie.starters]
starter-echo = echo_game.starters.echo
starter-lost = echo_game.starters.lost
starter-quits = echo_quits.starters.one
starter-file = echo_game.worlds.one

[coterie.diagnoses]
echo = echo_game.looks:look
broken = echo_game.broken:look
quits = echo_quits:look
odd = echo_game.looks:texts
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Iterator[Path]:
    """A package as pip installs it."""
    site = tmp_path / "site"
    (site / "echo_game").mkdir(parents=True)
    (site / "echo_game" / "__init__.py").write_text("")
    (site / "echo_game" / "worlds.py").write_text(GAME)
    (site / "echo_game" / "methods.py").write_text(METHOD)
    save_model(tiny(scale=2.0), site / "echo_game" / "starters" / "echo")
    (site / "echo_quits").mkdir()
    (site / "echo_quits" / "__init__.py").write_text("raise SystemExit(0)\n")
    (site / "echo_game" / "looks.py").write_text(LOOKS)
    (site / "echo_game" / "broken.py").write_text("import nothing_of_that_name\n")
    about = site / "echo_game-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-game\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(NAMES)
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "echo_game"]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["echo", "echo_game.worlds:Echo"])
def test_what_an_installed_package_has_is_named_by_its_module_or_as_it_says(package, name):
    config = load_config(
        name, ["team.a=x", "policies.x.model=starter", "environment.prize=2.0", "algorithm.name=twice"]
    )
    assert (type(config.environment).__name__, config.environment.prize) == ("Echo", 2.0)  # pyright: ignore[reportAttributeAccessIssue]
    assert type(config.algorithm).__name__ == "Twice"


def test_it_is_listed(package):
    listed = summary("environment")
    assert listed["echo"] == "Says what it heard. (installed: echo_game.worlds:Echo)"
    assert listed["damaged"] == "(installed: echo_game.broken:Echo)"
    assert listed["nowhere"] == "(installed: not.there:Echo)"
    assert listed["quits"] == "(installed: echo_quits.worlds:Echo)"
    assert "plan_path" in listed


def test_a_package_takes_no_name_of_ours(package):
    assert find("environment", "tally", Environment).__module__ == "coterie_worlds.tally"


def test_a_packages_starter_plays_its_world_without_a_word_in_the_config(package):
    config = load_config("echo")
    assert {policy.model for policy in config.policies.values()} == {"starter-echo"}
    assert load_model("starter-echo").net.num_parameters() == tiny().net.num_parameters()


def test_doctor_asks_packages_and_outlives_those_that_are_damaged(package, capsys):
    found = {(one.area, one.name): one for one in examine()}
    assert (found["echo", "voice"].ok, found["echo", "voice"].advice) == (False, "drink water")
    assert "nothing_of_that_name" in found["broken", "echo_game.broken:look"].text
    assert not found["quits", "echo_quits:look"].ok
    assert found["sandbox", "process"].ok
    assert "la la la" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["starter-lost", "starter-quits", "starter-file"])
def test_a_starter_whose_folder_is_gone_is_one_line(name, package):
    with pytest.raises(ConfigError, match=rf"^the starter {name} is not there: no package"):
        starter_folder(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ecko", "unknown environment 'ecko'; did you mean 'echo'?; there are gateway, prompts, assistants"),
        ("nothing_here.worlds:Echo", "there is no module 'nothing_here' here; install its package"),
        ("echo_game.wolds:Echo", "there is no module 'echo_game.wolds' here"),
        ("echo_game.worlds:Eco", "echo_game.worlds has no class Eco that is a coterie.Environment; it has Echo"),
        ("echo_game.methods:Twice", "echo_game.methods has no class Twice that is a coterie.Environment"),
        ("echo_game.broken:Echo", "echo_game.broken does not import: "),
        ("echo_game:", "unknown environment 'echo_game:'"),
        ("os.path:..", "unknown environment"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(package, name, message):
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_both_train_and_go_on_exactly(package, tmp_path):
    save_model(tiny(scale=2.0), tmp_path / "tiny")
    sets = [
        f"policies.x.model={tmp_path / 'tiny'}", "team.a=x", "algorithm.name=twice", "train.steps=3",
        "train.tasks_per_step=2", "train.eval_tasks=2", "train.checkpoint_every=1", "train.mute_every=0",
    ]  # fmt: skip
    whole = train(load_config("echo", sets), tmp_path / "whole")
    shutil.copytree(whole.folder, tmp_path / "cut")
    for step in (2, 3):
        shutil.rmtree(Run(tmp_path / "cut").checkpoints.path(step))
    train(resume=tmp_path / "cut")
    for name in ("whole", "cut"):
        with Run(tmp_path / name).checkpoints.reading() as (_, progress):
            assert progress.credit == {"steps": 3}
    weights = [
        (Run(tmp_path / name).checkpoints.path(3) / "policies/x/model.safetensors").read_bytes()
        for name in ("whole", "cut")
    ]
    assert weights[0] == weights[1]


def test_a_file_beside_the_config_goes_before_one_of_the_same_name_here(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    for folder in (tmp_path, tmp_path / "configs"):
        (folder / "mine.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert whole_name("mine.py", tmp_path / "configs") == str(tmp_path / "configs/mine.py")


def test_a_users_folder_hides_nothing_that_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(
        "from coterie import Environment\n\n\nclass Mine(Environment):\n    roles = ('a',)\n"
    )
    find("environment", str(tmp_path / "mine.py"), Environment)
    assert sys.path.index(str(tmp_path)) == len(sys.path) - 1


def test_a_file_that_has_changed_is_loaded_anew(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from coterie import Environment\n\n\nclass Mine(Environment):\n    roles = ('a',)\n")
    first = find("environment", str(file), Environment)
    assert find("environment", str(file), Environment) is first
    file.write_text(file.read_text().replace("'a'", "'b'"))
    assert find("environment", str(file), Environment).roles == ("b",)


def test_a_file_that_does_not_import_is_told_every_time(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="does not import: ZeroDivisionError"):
            find("environment", str(tmp_path / "bad.py"), Environment)


@pytest.mark.parametrize("model", ["smollm2", "gpt2"])
def test_a_name_beside_a_run_is_no_policy_of_it(model, tmp_path):
    """A run's config lies in the run's folder, and is read from there."""
    (tmp_path / "config.toml").touch()
    (tmp_path / "checkpoints").mkdir()
    assert whole_folder(model, tmp_path) == model


def test_a_table_in_an_environments_place_is_told_how_it_becomes_a_team():
    with pytest.raises(ConfigError, match=r"'qa\.csv' is a table; make a team for it: coterie new team qa\.csv"):
        find("environment", "qa.csv", Environment)
