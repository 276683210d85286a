"""Defaults fit what is trained; what a person writes wins, and is warned of where it is far off."""

import json
import struct

import pytest

from coterie import load_config
from coterie.config.fitting import parameters
from coterie.config.resolve import load_sft
from coterie.config.settings import LoraConfig, TrainConfig
from coterie.errors import ConfigError
from coterie.learning.optimizer import OptimizerConfig
from tests.toys import Crowd

TWO = ("team.a=x", "team.b=y", "team.c=y", "team.d=y")


def folder(path, count: int):
    """A model folder whose only file says that it has so many parameters."""
    path.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [count // 10, 10], "data_offsets": [0, 0]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def config(*sets: str, source: str = "tests/toys.py:Crowd"):
    return load_config(source, list(sets))


def test_a_real_model_is_trained_by_an_adapter_and_a_starter_as_ever():
    real, small = config("policies.*.model=smollm2"), config("policies.*.model=starter")
    assert {policy.kind for policy in real.policies.values()} == {"lora"}
    assert all(policy.lora == LoraConfig(rank=16, alpha=32.0) for policy in real.policies.values())
    assert (real.optimizer.lr, real.train.temperature, real.train.dtype) == (3e-4, 0.7, "auto")
    assert {policy.kind for policy in small.policies.values()} == {"full"}
    assert (small.optimizer, small.train, small.chosen) == (OptimizerConfig(), TrainConfig(), ())


def test_every_choice_is_told_with_its_reason_and_what_is_written_is_not_chosen():
    told = config("policies.*.model=smollm2", "optimizer.lr=2e-4", "train.steps=7").chosen
    assert any(line.startswith("train.temperature = 0.7: 135 million parameters") for line in told)
    assert not [line for line in told if line.startswith(("optimizer.lr", "train.steps"))]
    assert config("policies.*.model=smollm2", "train.steps=7").train.steps == 7


@pytest.mark.parametrize(
    ("model", "sets", "lr", "said"),
    [
        ("smollm2", (), 2e-5, ["sft.lr = 2e-05: all weights of 135 million parameters"]),
        ("smollm2", ("sft.lr=1e-4",), 1e-4, []),
        ("starter", (), 3e-3, []),
        (None, (), 3e-3, []),
    ],
)
def test_a_real_model_is_taught_by_demonstrations_at_its_own_rate(model, sets, lr, said):
    _, settings, _, chosen = load_sft("tally", sets, model)
    assert settings.lr == lr
    assert list(map(str, chosen)) == said


# 1e-5 for all weights of 135M, less in proportion down to 1e-6; 3e-4 for adapters, by the power 0.4
@pytest.mark.parametrize(
    ("model", "kind", "lr"),
    [
        ("a/Net-135M", "full", 1e-5),
        ("a/Net-0.27B", "full", 5e-6),
        ("a/Net-8B", "full", 1e-6),
        ("a/Net-135M", "lora", 3e-4),
        ("a/Net-4.32B", "lora", 7.5e-5),  # 32 times as large: 3e-4 / 4
    ],
)
def test_the_learning_rate_follows_kind_and_size(model, kind, lr):
    made = config(f"policies.*.model={model}", f"policies.*.kind={kind}")
    assert made.optimizer.lr == pytest.approx(lr, rel=0.05)


def test_a_real_model_plays_each_role_by_an_adapter_of_its_own_unless_a_team_is_written():
    made = config("policies.*.model=smollm2")
    assert dict(made.team.roles) == {role: role for role in "abcd"}
    assert made.chosen[0].startswith("team = ")
    assert set(config("policies.*.model=smollm2", "policies.*.kind=full").team.roles.values()) == {"team"}
    assert set(config("policies.*.model=starter").team.roles.values()) == {"team"}
    assert set(config("policies.team.model=smollm2").team.roles.values()) == {"team"}


def test_a_small_policy_beside_a_large_one_keeps_its_own_rate():
    made = config("policies.x.model=smollm2", "policies.y.model=starter", *TWO)
    assert (made.optimizer_of("x").lr, made.optimizer_of("y").lr) == (3e-4, OptimizerConfig().lr)
    assert made.policies["y"].kind == "full"
    made = config("policies.x.model=smollm2", "policies.x.optimizer.clip_norm=2.0", "policies.y.model=starter", *TWO)
    assert (made.optimizer_of("x").lr, made.optimizer_of("x").clip_norm) == (3e-4, 2.0)
    made = config("policies.x.model=smollm2", "policies.x.optimizer.lr=7e-5", "policies.y.model=starter", *TWO)
    assert made.optimizer_of("x").lr == 7e-5


@pytest.mark.parametrize(("lr", "words"), [("3e-4", "30 times"), ("1e-5", None), ("1e-8", "1000th")])
def test_a_learning_rate_far_from_what_fits_is_warned_of(lr, words):
    made = config("policies.*.model=smollm2", "policies.*.kind=full", f"optimizer.lr={lr}")
    told = [line for line in made.remarks if "learning rate" in line]
    assert bool(told) == (words is not None)
    assert not words or words in told[0]


def test_sizes_are_read_from_headers_and_names(tmp_path):
    assert parameters(str(folder(tmp_path / "large", 60_000_000))) == 60_000_000
    assert parameters("Qwen/Qwen3-0.6B") == 600_000_000
    assert parameters("Qwen/Qwen2.5-7B-Instruct-1M") == 7_000_000_000, "the other is a length"
    assert parameters("mistralai/Mixtral-8x7B-v0.1") == 56_000_000_000
    assert parameters("some/model") is None
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\xff" * 64)
    assert parameters(str(tmp_path / "broken")) is None


def test_an_adapter_is_as_large_as_its_base_and_a_model_of_unknown_size_is_no_starter(tmp_path):
    for name, base in (("adapter", "smollm2"), ("circle", str(tmp_path / "circle"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    assert parameters(str(tmp_path / "adapter")) == parameters("smollm2") == 134_515_008
    assert parameters(str(tmp_path / "circle")) is None
    for model in ("some/model", str(tmp_path / "adapter")):
        made = config(f"policies.*.model={model}", "policies.*.kind=lora")
        assert (made.optimizer.lr, made.train.temperature, len(made.policies)) == (3e-4, 0.7, 4)


def test_what_follows_from_a_written_value_follows_it_and_what_has_no_effect_is_not_chosen():
    def of(*sets: str) -> list[str]:
        return [line.partition(":")[0] for line in config("policies.*.model=smollm2", *sets).chosen]

    assert "eval.temperature = 1" in of("train.temperature=1.0")
    assert config("policies.*.model=smollm2", "train.temperature=1.0").eval.temperature == 1.0
    assert any(line.startswith("optimizer.lr") for line in of())
    assert not any(line.startswith("optimizer.lr") for line in of("policies.*.optimizer.lr=1e-4"))
    assert not any("_every" in line for line in of("train.steps=5000"))
    made = config("policies.*.model=smollm2", "policies.*.lora.targets=['q_proj']")
    lora = LoraConfig(rank=16, alpha=32.0, targets=("q_proj",))
    assert all(policy.lora == lora for policy in made.policies.values())


def test_a_folder_is_large_by_its_header(tmp_path):
    small, large = folder(tmp_path / "small", 40_000_000), folder(tmp_path / "large", 60_000_000)
    assert config(f"policies.*.model={small}").policies["team"].kind == "full"
    assert config(f"policies.*.model={large}").policies["a"].kind == "lora"


def test_flags_are_settings_and_an_error_names_the_flag():
    from coterie.config.toml import flags

    made = load_config("tests/toys.py:Crowd", flags({"model": "starter", "lr": 1e-3, "steps": 3, "kind": None}))
    assert (made.policies["team"].model, made.optimizer.lr, made.train.steps) == ("starter", 1e-3, 3)
    with pytest.raises(ConfigError, match=r"^--kind wrong: "):
        load_config("tests/toys.py:Crowd", flags({"model": "starter", "kind": "wrong"}))


def test_frozen_and_remote_policies_keep_their_model():
    sets = ["policies.x.model=starter", "policies.x.kind=frozen", "policies.y.model=starter", *TWO]
    made = config(*sets, "policies.*.model=smollm2")
    assert (made.policies["x"].model, made.policies["y"].model) == ("starter", "smollm2")


def test_a_default_that_the_environment_has_too_few_tasks_for_is_lowered():
    few = config("policies.*.model=smollm2", source="tests/config/test_fitting.py:Few")
    assert few.train.eval_tasks == few.train.mute_tasks == 5
    assert not few.inert()["train"], "roles can be muted on as many"


class Few(Crowd):
    """Five validation tasks."""

    def count(self, split):
        return 5 if split == "validation" else None
