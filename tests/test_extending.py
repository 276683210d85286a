"""What docs/extending.md shows: one file of a user's own, named in every way, trains and resumes to the bit."""

from __future__ import annotations

import importlib
import inspect
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie import Engine, Tracker, load_config, train, update
from coterie.errors import CheckpointError, ConfigError, CoterieError
from coterie.models.load import save_model
from coterie.registry import find, summary
from coterie.run.folder import Run
from coterie.run.loaded import load
from coterie.run.weights import TeamModels
from tests.runs import cut_back, untimed, weights
from tests.test_docs import ROOT, blocks
from tests.toys import tiny

PAGE = ROOT / "docs/extending.md"
SMALL = {"train": {"steps": 3, "tasks_per_step": 4, "eval_every": 2, "eval_tasks": 6, "checkpoint_every": 1,
                   "keep_checkpoints": 9, "episodes_every": 1}}  # fmt: skip
KINDS = {"environment": "Echo", "algorithm": "Baseline", "loss": "Softened", "engine": "Plain", "tracker": "Log"}


def mine() -> str:
    """The page's file."""
    return "\n\n".join(blocks(PAGE, "python"))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extending") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


@pytest.fixture(scope="module")
def tables(model, tmp_path_factory) -> dict:
    """The page's config, small."""
    home = tmp_path_factory.mktemp("mine")
    (home / "mine.py").write_text(mine())
    (text,) = (block for block in blocks(PAGE, "toml") if "[environment]" in block)
    found = tomllib.loads(text.replace("mine.py", f"{home / 'mine.py'}").replace("Qwen/Qwen3-0.6B", str(model)))
    return {**found, **SMALL}


@pytest.fixture(scope="module")
def whole(tables, tmp_path_factory) -> Path:
    return train(tables, tmp_path_factory.mktemp("whole") / "run").folder


@pytest.mark.slow
def test_it_trains_with_what_each_class_does(whole):
    run = Run(whole)
    first = run.metrics()[1]
    assert 0 <= first["policy/team/floored"] <= 1  # the loss
    assert "policy/team/clip_share" not in first
    with run.checkpoints.reading(3) as (_, progress):
        assert set(progress.credit or {}) == {"mean"}  # the algorithm
        assert progress.credit != {"mean": 0.0}
    rows = (whole / "curve.csv").read_text().splitlines()  # the tracker
    assert rows[0] == "step,success"
    assert [row.split(",")[0] for row in rows[1:]] == ["0", "2", "3"]
    assert run.config.names["engine"].endswith("mine.py:Plain")  # the engine
    moved = [run.metrics()[at]["policy/team/mismatch_max"] for at in (1, 2, 3)]
    assert max(moved) < 1e-3  # what it says it sampled is what the learner finds


@pytest.mark.slow
def test_a_resume_goes_on_to_the_bit(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 1)
    again = train(resume=folder)
    assert untimed(again.folder) == untimed(whole)
    assert weights(folder, 3) == weights(whole, 3)
    assert (folder / "curve.csv").read_text() == (whole / "curve.csv").read_text()


def test_a_file_that_has_changed_is_named(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "checkpoints/step-00003")
    file = Path(Run(folder).config.names["engine"].removesuffix(":Plain"))
    before = file.read_text()
    try:
        file.write_text(before.replace("self.beats += 1", "self.beats += 2"))
        with pytest.raises(CheckpointError, match=r"run with .*engine .*restore its file"):
            train(resume=folder)
    finally:
        file.write_text(before)


def test_it_is_evaluated_twice_and_one_update_is_made_again(whole):
    team = load(whole)
    first, second = team.evaluate(tasks=5), team.evaluate(tasks=5)
    assert first == second
    found = update(whole, 2)
    assert found.differs == ()
    assert found.compared == "weights and metrics"


def test_each_is_short(tables):
    engine = find("engine", tables["engine"]["name"], Engine)
    assert len(inspect.getsource(engine).splitlines()) < 60


@pytest.fixture
def package(tmp_path, monkeypatch) -> Iterator[None]:
    """The same file as an installed package, with entry points."""
    site = tmp_path / "site"
    (site / "mine_package").mkdir(parents=True)
    (site / "mine_package" / "__init__.py").write_text("")
    (site / "mine_package" / "parts.py").write_text(mine())
    info = site / "mine_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-package\nVersion: 1.0\n")
    plural = {kind: "losses" if kind == "loss" else f"{kind}s" for kind in KINDS}
    (info / "entry_points.txt").write_text(
        "".join(f"[coterie.{plural[kind]}]\nmy_{kind} = mine_package.parts:{name}\n\n" for kind, name in KINDS.items())
    )
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith("mine_package")]:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["my_{kind}", "mine_package.parts:{name}"])
def test_an_installed_package_is_named_by_module_and_by_entry_point(package, tables, whole, tmp_path, named):
    def called(kind: str) -> str:
        return named.format(kind=kind, name=KINDS[kind])

    other = {**tables, "trackers": {"log": {**tables["trackers"]["log"], "name": called("tracker")}}}
    for kind in ("environment", "algorithm", "loss", "engine"):
        other[kind] = {**tables[kind], "name": called(kind)}
    run = train(other, tmp_path / "run")
    assert untimed(run.folder) == untimed(whole)
    if named.startswith("my_"):
        assert all(f"my_{kind}" in summary(kind) for kind in KINDS)


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        (
            "engine",
            {"name": "vlm"},
            "unknown engine 'vlm'; did you mean 'vllm'?; there are transformers, vllm, or FILE.py:Class",
        ),
        ("engine", {"memory_gib": 0}, "engine.memory_gib"),
        ("engine", {"memory": 1}, "unknown key 'engine.memory'; did you mean 'memory_gib'"),
        ("engine", {"name": "tests/toys.py:Agree"}, "has no class Agree that is a coterie.Engine"),
        ("loss", {"name": "gsop"}, "unknown loss 'gsop'; did you mean 'gspo'"),
        ("loss", {"epsilon_hi": 1.0}, "unknown key 'loss.epsilon_hi'; did you mean 'epsilon_high'"),
        ("loss", {"overlong_penalty": 2.0}, "overlong_from = none charges no length"),
        ("algorithm", {"denominator": "tasks"}, "it is loss.denominator"),
        ("trackers", {"wand": {}}, "unknown tracker 'wand'"),
        ("trackers", {"log": 3}, "'trackers.log' is a table"),
        ("policies", {"team": {"kind": "adapter"}}, "policies.team.kind"),
        ("policies", {"team": {"kind": "lora", "lora": {"rank": 0}}}, r"policies.team.lora.rank = 0: input should be"),
        (
            "policies",
            {"team": {"kind": "lora", "lora": {"ranks": 4}}},
            r"unknown key 'policies.team.lora.ranks'; did you",
        ),
        ("policies", {"team": {"kind": "lora", "lora": 4}}, r"policies.team.lora = 4: it is a table"),
        ("policies", {"team": {"device": "gpu"}}, "policies.team.device"),
        ("policies", {"team": {"lr": 1}}, "unknown key 'policies.team.lr'; it is policies.team.optimizer.lr"),
        ("policies", {"team": {"url": ""}}, "unknown key 'policies.team.url'; it is policies.team.remote.url"),
        ("policies", {"team": {"optimizer": {"lrr": 1}}}, "unknown key 'policies.team.optimizer.lrr'"),
    ],
)
def test_a_mistake_is_one_line(model, table, content, message):
    base = {"environment": {"name": "tests/toys.py:Agree"}, "policies": {"team": {"model": str(model)}}}
    if table == "policies":
        content = {"team": {"model": str(model), **content["team"]}}
    with pytest.raises(ConfigError) as told:
        load_config({**base, table: content})
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("table", "base", "method"),
    [("algorithm", "Algorithm", "collect"), ("loss", "Loss", "tokens"), ("engine", "Engine", "generate"),
     ("trackers", "Tracker", "log")],
)  # fmt: skip
def test_a_class_without_its_own_method_is_one_line(model, tmp_path, table, base, method):
    (tmp_path / "half.py").write_text(f"from coterie import {base}\n\n\nclass Half({base}):\n    pass\n")
    named = {"name": f"{tmp_path}/half.py:Half"}
    tables = {"environment": {"name": "tests/toys.py:Agree"}, "policies": {"team": {"model": str(model)}}}
    with pytest.raises(ConfigError, match=f"Half has no method {method}, which every"):
        load_config({**tables, table: {"mine": named} if table == "trackers" else named})


def test_a_tracker_that_cannot_begin_is_one_line_and_leaves_nothing(tables, tmp_path):
    wrong = {**tables, "trackers": {"log": {**tables["trackers"]["log"], "file": "no/such/folder/x.csv"}}}
    with pytest.raises(CoterieError, match=r"tracker 'log' \(Log\) did not begin: FileNotFoundError"):
        train(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Ends(Tracker):
    """Begins, and says when it is let go of."""

    def __init__(self, ended: list[str], fails: str = "") -> None:
        super().__init__()
        self.ended, self.fails = ended, fails

    def begin(self, folder, tables, lines) -> None:
        if self.fails:
            raise ValueError(self.fails)

    def end(self) -> None:
        self.ended.append("one")


def test_where_one_cannot_begin_those_that_had_are_let_go_of(tables, tmp_path):
    ended: list[str] = []
    with pytest.raises(ConfigError, match="did not begin: ValueError: no room"):
        train(tables, tmp_path / "run", trackers=[Ends(ended), Ends(ended, "no room")])
    assert ended == ["one"]


def test_a_policy_has_what_the_table_of_all_says_and_its_own(model):
    sets = [f"policies.{name}.model={model}" for name in "xy"]
    sets += ["team.a=x", "team.b=y", "optimizer.lr=1e-4", "optimizer.clip_norm=0.5", "policies.y.optimizer.lr=2e-4"]
    config = load_config("tests/toys.py:Agree", sets)
    found = {name: config.optimizer_of(name) for name in "xy"}
    assert {name: (one.lr, one.clip_norm) for name, one in found.items()} == {"x": (1e-4, 0.5), "y": (2e-4, 0.5)}


def test_a_policy_has_its_own_template_and_device(model):
    sets = [f"policies.{name}.model={model}" for name in "xy"]
    sets += ["team.a=x", "team.b=y", "policies.y.template.enable_thinking=false", "train.device=cpu"]
    made = TeamModels(load_config("tests/toys.py:Agree", sets)).policies
    assert [dict(made[name].template) for name in "xy"] == [{}, {"enable_thinking": False}]
    with pytest.raises(ConfigError, match="cuda:7"):
        TeamModels(load_config("tests/toys.py:Agree", [*sets, "policies.y.device=cuda:7"]))


def test_an_optimizers_settings_are_judged_as_a_policy_has_them(model):
    sets = [f"policies.{name}.model={model}" for name in "xy"]
    sets += ["team.a=x", "team.b=y", "optimizer.schedule=constant"]
    with pytest.raises(ConfigError, match=r"policies.x.optimizer.min_lr_share has no effect: schedule = 'constant'"):
        load_config("tests/toys.py:Agree", [*sets, "policies.x.optimizer.min_lr_share=0.5"])
    with pytest.raises(ConfigError, match=r"optimizer.min_lr_share has no effect: schedule = 'constant'"):
        load_config("tests/toys.py:Agree", [*sets, "optimizer.min_lr_share=0.5"])
    own = [f"policies.{name}.optimizer.lr=1e-4" for name in "xy"]
    with pytest.raises(ConfigError, match=r"optimizer.lr has no effect: every policy has one of its own"):
        load_config("tests/toys.py:Agree", [*sets, *own, "optimizer.lr=1e-3"])
    mixed = [*sets, "optimizer.min_lr_share=0.5", "policies.y.optimizer.schedule=linear"]
    config = load_config("tests/toys.py:Agree", mixed)
    again = load_config(config.tables())
    assert again.optimizer_of("y") == config.optimizer_of("y")
    assert config.optimizer_of("y").min_lr_share == 0.5


def test_bounds_of_a_loss_have_an_effect_where_the_engine_is_not_the_learners_own_arithmetic(model, tables):
    alone = {**tables, "loss": {"name": "gspo", "epsilon": 0.2}}
    assert load_config(alone).loss.model_dump()["epsilon"] == 0.2
    with pytest.raises(ConfigError, match=r"loss.epsilon has no effect"):
        load_config({**alone, "engine": {}})
