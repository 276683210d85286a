"""What a policy has of its own: a temperature, a dtype, a chat template and variables of it."""

from __future__ import annotations

import copy

import pytest
import torch

from coterie import load, load_config, train
from coterie.errors import CheckpointError, ConfigError
from coterie.models.adapters import Adapted
from coterie.models.load import Model, save_model
from coterie.run.weights import TeamModels
from tests.toys import tiny

SETS = ["team.a=x", "team.b=y", "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=5",
        "train.episodes_every=1", "algorithm.num_generations=3"]  # fmt: skip
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}go on"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own") / "tiny"
    save_model(tiny(scale=2.0), made)
    return made


def config(folder, *sets):
    return load_config("tests/toys.py:Agree", [*SETS, *(f"policies.{name}.model={folder}" for name in "xy"), *sets])


@pytest.mark.slow
def test_each_is_sampled_and_trained_at_its_own_temperature(folder, tmp_path):
    run = train(config(folder, "policies.y.temperature=0.5", "train.temperature=2.0"), tmp_path / "run")
    groups = [group for played in run.episodes(2) for group in played.collected.groups]
    samples = [sample for group in groups for member in group.members for sample in member.samples]
    assert {(sample.policy, sample.temperature) for sample in samples} == {("x", 2.0), ("y", 0.5)}
    assert all(run.metrics()[-1][f"policy/{name}/mismatch"] < 1e-4 for name in "xy")


def test_each_computes_in_its_own_dtype(folder):
    models = TeamModels(config(folder, "policies.y.dtype=bfloat16", "policies.y.kind=lora"))
    assert [models.policies[name].dtype for name in "xy"] == [torch.float32, torch.bfloat16]
    assert {weight.dtype for weight in base_of(models, "y").net.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in models.policies["x"].model.net.parameters()} == {torch.float32}
    bounds = config(folder, "policies.y.dtype=bfloat16").inert()["loss"]
    assert not bounds
    assert config(folder).inert()["loss"]


def base_of(models: TeamModels, policy: str) -> Model:
    model = models.policies[policy].model
    assert isinstance(model, Adapted)
    return model.base


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_each_has_its_own_chat_template_which_a_checkpoint_keeps(kind, folder, tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text(TEMPLATE)
    made = config(folder, f"policies.y.chat_template={file}", f"policies.y.kind={kind}")
    run = train(made, tmp_path / "run")
    team = load(run)
    x, y = (team.models.policies[name] for name in "xy")
    assert y.tokenizer.decode(y.render("pick", "b")) == "pick go on"
    assert x.tokenizer.decode(x.render("pick", "b")) != "pick go on"
    before = team.evaluate(tasks=5)
    file.write_text(TEMPLATE + "!")
    with pytest.raises(CheckpointError, match="policy y"):
        train(load_config(run.folder / "config.toml", ["train.steps=3"]), resume=run.folder)
    if kind == "full":
        file.unlink()
        assert load(run).evaluate(tasks=5) == before


def test_two_adapters_of_one_base_have_templates_of_their_own(folder, tmp_path):
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    kinds = [f"policies.{name}.kind=lora" for name in "xy"]
    models = TeamModels(config(folder, *kinds, f"policies.y.chat_template={tmp_path / 'mine.jinja'}"))
    x, y = (models.policies[name] for name in "xy")
    assert base_of(models, "x") is base_of(models, "y")
    assert x.tokenizer.chat_template != y.tokenizer.chat_template


def test_a_base_model_without_a_template_needs_one(folder, tmp_path):
    bare = copy.deepcopy(tiny(scale=2.0))
    bare.tokenizer = copy.deepcopy(bare.tokenizer)
    bare.tokenizer.chat_template = None
    save_model(bare, tmp_path / "bare")
    with pytest.raises(ConfigError, match=r"policies\.y\.model: .*no chat template.*policies\.y\.chat_template"):
        TeamModels(config(folder, f"policies.y.model={tmp_path / 'bare'}"))
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    TeamModels(
        config(folder, f"policies.y.model={tmp_path / 'bare'}", f"policies.y.chat_template={tmp_path}/mine.jinja")
    )


@pytest.mark.parametrize(
    ("setting", "told"),
    [("policies.y.chat_template=none.jinja", r"policies\.y\.chat_template = 'none\.jinja'.*cannot be read"),
     ("policies.y.template={foo = 1}", r"policies\.y\.template\.foo has no effect"),
     ("policies.y.temperature=0", r"policies\.y\.temperature = 0: ")],
)  # fmt: skip
def test_mistakes_are_one_line(setting, told, folder, tmp_path):
    with pytest.raises(ConfigError, match=told):
        train(config(folder, setting), tmp_path / "run")
    assert not (tmp_path / "run").exists()
