"""What leaves a run: folders that transformers, PEFT and Coterie load as what they were."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import AutoPeftModelForCausalLM

from coterie import export, load, load_config, train
from coterie.errors import CheckpointError, ConfigError
from coterie.models.load import save_model
from coterie.run.export import _copy, push_to_hub
from coterie.run.folder import Run
from coterie.run.weights import TeamModels
from tests.runs import weights
from tests.servers import serving
from tests.toys import tiny

SETS = ["team.a=whole", "team.b=adapter", "team.c=fixed", "team.d=server", "policies.adapter.kind=lora",
        "policies.adapter.lora.rank=2", "policies.adapter.lora.alpha=4", "policies.fixed.kind=frozen",
        "policies.server.kind=remote", "policies.server.model=gpt", "train.steps=2", "train.tasks_per_step=4",
        "train.eval_tasks=10", "train.checkpoint_every=1", "algorithm.num_generations=4",
        "optimizer.lr=1e-2"]  # fmt: skip
IDS = torch.arange(5, 25)[None]


@pytest.fixture(scope="module")
def server():
    with serving(lambda body, number: "even") as made:
        yield made


@pytest.fixture(scope="module")
def run(server, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("export")
    save_model(tiny(scale=2.0), folder / "tiny")
    models = [f"policies.{name}.model={folder / 'tiny'}" for name in ("whole", "adapter", "fixed")]
    config = load_config("tests/toys.py:Crowd", [*SETS, *models, f"policies.server.remote.url={server.url}"])
    return train(config, folder / "run")


@pytest.fixture(scope="module")
def out(run, tmp_path_factory) -> Path:
    return export(run, tmp_path_factory.mktemp("out") / "team", step=2)


def logits(net) -> torch.Tensor:
    with torch.no_grad():
        return net.eval()(input_ids=IDS).logits


def ours(run: Run, step: int, policy: str) -> torch.Tensor:
    return logits(load(run, step).models.policies[policy].model.net)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_transformers_and_peft_load_what_was_trained(run, out):
    whole = transformers.AutoModelForCausalLM.from_pretrained(out / "whole")
    assert torch.equal(logits(whole), ours(run, 2, "whole"))
    adapter = AutoPeftModelForCausalLM.from_pretrained(out / "adapter")
    assert torch.allclose(logits(adapter), ours(run, 2, "adapter"), atol=1e-5)
    assert not torch.allclose(logits(adapter), ours(run, 0, "adapter"), atol=1e-3)
    assert torch.equal(logits(transformers.AutoModelForCausalLM.from_pretrained(out / "fixed")), ours(run, 2, "fixed"))
    for name in ("whole", "adapter", "fixed"):
        words = transformers.AutoTokenizer.from_pretrained(out / name)
        assert words.chat_template == load(run).models.policies[name].tokenizer.chat_template
    assert not (out / "server").exists()


@pytest.mark.slow
def test_it_comes_back_as_the_team_it_was(run, out, tmp_path):
    moved = shutil.copytree(out, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    for folder in (out, moved):
        made = load_config(folder / "team.toml")
        assert made.team == run.config.team
        models = TeamModels(made)
        for name in ("whole", "adapter", "fixed"):
            assert torch.equal(logits(models.policies[name].model.net), ours(run, 2, name)), name
    again = train(load_config(moved / "team.toml", ["train.steps=1"]), tmp_path / "again")
    assert load(again, 0).evaluate(tasks=6) == load(run, 2).evaluate(tasks=6)
    assert {name.split("/")[1] for name in weights(again.folder, 1)} == {"whole", "adapter"}
    twice = export(again, tmp_path / "twice")
    assert tomllib.loads((twice / "team.toml").read_text())["policies"]["adapter"]["lora"]["rank"] == 2


def test_an_adapter_that_has_moved_finds_the_base_beside_it(out, tmp_path):
    shutil.copytree(out, tmp_path / "team")
    file = tmp_path / "team/adapter/adapter_config.json"
    config = json.loads(file.read_text())
    assert Path(config["base_model_name_or_path"]).is_absolute()
    file.write_text(json.dumps({**config, "base_model_name_or_path": "/nowhere/base"}))
    TeamModels(load_config(tmp_path / "team/team.toml"))


def test_merged_it_is_a_whole_model(run, out, tmp_path):
    merged = export(run, tmp_path / "merged", step=2, merge=True)
    whole = transformers.AutoModelForCausalLM.from_pretrained(merged / "adapter")
    assert torch.allclose(logits(whole), ours(run, 2, "adapter"), atol=1e-5)
    assert not list(merged.glob("base*"))
    assert load_config(merged / "team.toml").policies["adapter"].kind == "full"
    assert TeamModels(load_config(merged / "team.toml")).policies["adapter"].tokenizer.chat_template


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TRL's own
def test_trl_trains_it_on(run, out, tmp_path):
    trl: Any = pytest.importorskip("trl", reason="needs the extra oracles: pip install 'coterie[oracles]'")
    datasets: Any = pytest.importorskip("datasets")
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=4, max_steps=1, num_generations=4, save_strategy="no",
        max_completion_length=4, report_to=[], use_cpu=True, bf16=False, activation_checkpointing=False,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=str(out / "whole"), args=settings, train_dataset=datasets.Dataset.from_list([{"prompt": "pick"}] * 4),
        reward_funcs=lambda completions, **_: [float(len(text)) for text in completions],
    )  # fmt: skip
    assert torch.equal(logits(trainer.model.float()), ours(run, 2, "whole"))
    trainer.train()


def test_cards_and_routes_say_what_it_is(run, out):
    card = (out / "adapter/README.md").read_text()
    assert 'library_name: "peft"' in card
    assert "- plays: b" in card
    assert "2 steps" in card
    assert "never: it is frozen" in (out / "fixed/README.md").read_text()
    told = tomllib.loads((out / "team.toml").read_text())
    assert told["team"] == {"a": "whole", "b": "adapter", "c": "fixed", "d": "server"}
    assert told["policies"]["whole"]["model"] == "whole"
    assert str(run.folder) not in (out / "team.toml").read_text() + (out / "README.md").read_text()
    assert not list(out.parent.glob(".team*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frozen", "lora", "full"])
def test_what_is_exported_is_named_by_its_folder(kind, run, out, tmp_path):
    """An adapter is trained on or played; it is no whole model."""
    lora = {"lora": ["policies.x.lora.rank=2", "policies.x.lora.alpha=4"]}.get(kind, [])
    sets = [f"team.{role}=y" for role in "bcd"] + ["team.a=x", f"policies.y.model={out / 'whole'}"]
    config = load_config(
        "tests/toys.py:Crowd", [*sets, f"policies.x.model={out / 'adapter'}", f"policies.x.kind={kind}", *lora]
    )
    if kind == "full":
        with pytest.raises(ConfigError, match="this folder holds an adapter: kind = 'lora' trains it"):
            TeamModels(config)
        return
    assert torch.equal(logits(TeamModels(config).policies["x"].model.net), ours(run, 2, "adapter"))
    assert bool(TeamModels(config).policies["x"].model.trained) is (kind == "lora")


def test_another_rank_than_the_adapters_is_refused(out):
    sets = [f"team.{role}=x" for role in "abcd"]
    config = load_config("tests/toys.py:Crowd", [*sets, f"policies.x.model={out / 'adapter'}", "policies.x.kind=lora"])
    with pytest.raises(ConfigError, match=r"has rank = 2 and alpha = 4, not 32 and 32; set them so"):
        TeamModels(config)


@pytest.mark.slow
def test_a_past_self_and_a_starter_leave_with_the_team(run, tmp_path):
    sets = ["team.a=x", "team.b=past", "team.c=old", "team.d=old", f"policies.x.model={run.folder}#2/whole",
            "policies.past.kind=frozen", f"policies.past.model={run.folder}#2/adapter", "policies.old.kind=frozen",
            f"policies.old.model={run.folder}#1/whole", "train.steps=1", "train.tasks_per_step=2",
            "train.eval_tasks=4"]  # fmt: skip
    made = train(load_config("tests/toys.py:Crowd", sets), tmp_path / "run")
    out = export(made, tmp_path / "team")
    models = TeamModels(load_config(out / "team.toml"))
    assert torch.equal(logits(models.policies["past"].model.net), ours(run, 2, "adapter"))
    assert torch.equal(logits(models.policies["old"].model.net), ours(run, 1, "whole"))


def test_mistakes_are_one_line_and_leave_nothing(run, out, tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="exists"):
        export(run, out)
    with pytest.raises(CheckpointError, match="no checkpoint of step 9"):
        export(run, tmp_path / "team", step=9)
    alone = train(load_config("tests/toys.py:Agree", [f"policies.team.model={out / 'whole'}", "train.steps=1",
                              "train.tasks_per_step=2", "train.eval_tasks=4"]), tmp_path / "run")  # fmt: skip
    with pytest.raises(ConfigError, match=r"no policy of .* is an adapter"):
        export(alone, tmp_path / "team", merge=True)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.run.export.shutil.copytree", full)
    with pytest.raises(CheckpointError, match=r"No space left.*make room and choose another folder"):
        export(run, tmp_path / "team")
    monkeypatch.setattr("coterie.run.export.shutil.copytree", stopped)
    with pytest.raises(KeyboardInterrupt):
        export(run, tmp_path / "team")
    assert not [file for file in tmp_path.iterdir() if "team" in file.name]


def test_a_link_out_of_a_models_folder_is_not_followed(tmp_path):
    hub = tmp_path / "models--a--b"  # as the hub's cache has it: files are links to blobs
    model = hub / "snapshots/1"
    model.mkdir(parents=True)
    (hub / "blobs").mkdir()
    (hub / "blobs/x").write_text("weights")
    (model / "model.safetensors").symlink_to("../../blobs/x")
    (model / "sub").mkdir()
    (model / "sub/again").symlink_to("../model.safetensors")
    _copy(model, tmp_path / "out")
    assert (tmp_path / "out/model.safetensors").read_text() == (tmp_path / "out/sub/again").read_text() == "weights"
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/id").write_text("secret")
    for number, target in enumerate((tmp_path / "secret/id", "../../../secret/id", tmp_path / "secret")):
        link = model / "sub/odd"
        link.symlink_to(target)
        with pytest.raises(ConfigError, match=r"odd is a link to .*secret.*, outside of its folder"):
            _copy(model, tmp_path / f"out{number}")
        assert not (tmp_path / f"out{number}").exists()
        link.unlink()


def test_it_is_pushed_whole_and_private(out, monkeypatch):
    told = []

    class Api:
        def create_repo(self, name, **settings):
            told.append((name, settings))
            return f"https://hub/{name}"

        def upload_folder(self, **settings):
            told.append(settings["repo_id"])
            assert (Path(settings["folder_path"]) / "team.toml").exists()

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert push_to_hub(out, "me/team") == "https://hub/me/team"
    assert told == [("me/team", {"private": True, "exist_ok": True}), "me/team"]
    with pytest.raises(ConfigError, match="write it as owner/name"):
        push_to_hub(out, "team")

    def nobody(self, name, **settings):
        raise OSError("Token is required")

    monkeypatch.setattr(Api, "create_repo", nobody)
    with pytest.raises(ConfigError, match=r"Token is required; .* hf upload me/team"):
        push_to_hub(out, "me/team")
