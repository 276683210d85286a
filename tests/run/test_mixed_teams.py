"""Teams whose policies are of different families, with tokenizers and templates of their own."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

from coterie import Ablation, load, load_config, train
from coterie.checks.families import FOUND, check_family
from coterie.errors import ConfigError
from coterie.models.load import load_model, prepare, save_model
from coterie.run.policies import Policies
from tests.families import family
from tests.runs import cut_back, untimed, weights
from tests.toys import tiny, tokenizer

SETS = ["team.a=x", "team.b=y", "train.steps=4", "train.tasks_per_step=4", "train.eval_tasks=10", "train.eval_every=2",
        "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes_every=1", "algorithm.num_generations=4",
        "optimizer.lr=1e-3"]  # fmt: skip
OTHER = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}<|im_end|>{% endfor %}[assistant] "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", "full"),
        ("gemma3_text", "lora"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("llama", "lora"), ("gemma3_text", "full"))),
    ],
)
def test_qwen3_and_another_family_train_as_one_team_and_go_on_exactly(name, kind, tmp_path):
    save_model(tiny(scale=2.0), tmp_path / "qwen3")
    words = copy.deepcopy(tokenizer(280))
    words.chat_template = OTHER
    save_model(prepare(family(name).net, words), tmp_path / name)
    one, other = (load_model(str(tmp_path / folder)) for folder in ("qwen3", name))
    assert one.family != other.family
    assert one.vocabulary != other.vocabulary
    assert one.tokenizer.encode("pick a1") != other.tokenizer.encode("pick a1")
    sets = [
        *SETS,
        f"policies.x.model={tmp_path / 'qwen3'}",
        f"policies.y.model={tmp_path / name}",
        f"policies.y.kind={kind}",
    ]
    config = load_config("tests/toys.py:Agree", sets)
    run = train(config, tmp_path / "run")
    for policy in "xy":
        told = [line for line in run.metrics() if f"policy/{policy}/grad_norm" in line]
        assert told
        assert all(line[f"policy/{policy}/mismatch"] < 1e-4 for line in told)
        assert all(line[f"policy/{policy}/grad_norm"] > 0 for line in told)
    shutil.copytree(run.folder, tmp_path / "again")
    cut_back(tmp_path / "again", 2)
    train(config, resume=tmp_path / "again")
    assert untimed(tmp_path / "again") == untimed(run.folder)
    assert weights(tmp_path / "again", 4) == weights(run.folder, 4)
    _, after = load(run).ablate([Ablation.parse("swap", "a,b"), Ablation.parse("replace", "b=base")], tasks=6)
    assert [one.tasks for one in after] == [6, 6]


@pytest.mark.parametrize(
    "other",
    [
        ["train.deterministic=false"], ["train.dtype=bfloat16"], ["policies.x.kind=lora"],
        ["policies.x.kind=lora", "policies.x.lora.rank=2"],
    ],
    ids=lambda sets: sets[-1],
)  # fmt: skip
def test_a_network_that_is_run_in_another_way_is_tested_again(tmp_path, monkeypatch, other):
    tested: list[str] = []

    def noted(made, **how) -> None:
        tested.append(made.name)

    monkeypatch.setattr("coterie.run.policies.check_family", noted)
    monkeypatch.setattr("coterie.run.policies.TESTED", {})
    save_model(tiny(1), tmp_path / "one")
    sets = ["team.a=x", "team.b=x", f"policies.x.model={tmp_path / 'one'}", *other[:-1]]
    for more in ([], [], other[-1:], other[-1:]):
        config = load_config("tests/toys.py:Agree", [*sets, *more])
        Policies(config).make(f"with {' '.join(more)}", config.policies["x"])
    assert tested == ["with ", f"with {other[-1]}"]


def test_of_networks_that_are_tested_once_for_all_each_has_sound_weights(tmp_path, monkeypatch):
    tested: list[str] = []

    def noted(made, **how) -> None:
        tested.append(made.name)
        check_family(made, **how)
        for found in FOUND:
            setattr(made.model, found, (made.name, found))

    monkeypatch.setattr("coterie.run.policies.check_family", noted)
    monkeypatch.setattr("coterie.run.policies.TESTED", {})
    for name in ("one", "two", "wide"):
        save_model(tiny(len(name), hidden=64 if name == "wide" else 32), tmp_path / name)
    models = [f"policies.{name}.model={tmp_path / 'one'}" for name in "xy"]
    config = load_config("tests/toys.py:Agree", ["team.a=x", "team.b=y", *models])
    for name in ("one", "two", "wide"):
        policy = Policies(config).make(name, config.policies["x"].model_copy(update={"model": str(tmp_path / name)}))
        twin = "wide" if name == "wide" else "one"
        assert all(getattr(policy.model, found) == (twin, found) for found in FOUND)
    assert tested == ["one", "wide"]
    model = tiny(3)
    with torch.no_grad():
        next(model.net.parameters())[0, 0] = float("nan")
    save_model(model, tmp_path / "damaged")
    with pytest.raises(ConfigError, match="policy 'bad' has weights that are no finite numbers"):
        Policies(config).make("bad", config.policies["x"].model_copy(update={"model": str(tmp_path / "damaged")}))
