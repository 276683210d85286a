"""What a run will take, before it starts: every kind of memory by hand, and nothing loaded or run on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coterie import load, load_config, train
from coterie.checks import machines
from coterie.checks.machines import GPUS, Machine, gpu
from coterie.config.settings import LoraConfig
from coterie.engines.decoding import Decoder
from coterie.engines.transformers import TransformersConfig
from coterie.errors import CheckpointError, ConfigError
from coterie.learning.policy import Policy
from coterie.models import load as loading
from coterie.models.load import save_model
from coterie.models.memory import GIB
from coterie.models.shapes import Shapes
from coterie.run import dry, measured, policies
from coterie.run import plan as planning
from coterie.run.asked import asked_by
from coterie.run.dry import dry_run
from coterie.run.measured import Share
from coterie.run.plan import Plan, check_planned, plan
from coterie.run.pools import needed
from coterie.run.weights import TeamModels
from tests.test_cli import call
from tests.toys import tiny

ROOT = Path(__file__).parents[2]
GPU_CONFIGS = sorted((ROOT / "configs/gpu").glob("*.toml"))
BOX = Machine("box", "cpu", 8 * GIB, 1e11, 1e11, 1e10)
SETS = ["team.a=x", "team.b=y", "train.steps=2", "train.tasks_per_step=4", "train.eval_tasks=5",
        "algorithm.num_generations=3"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("plan") / "tiny"
    save_model(tiny(scale=2.0), made)
    return made


def config(folder, *sets, environment="Agree"):
    models = [f"policies.{name}.model={folder}" for name in "xy"]
    return load_config(f"tests/toys.py:{environment}", [*SETS, *models, *sets])


def shares(config) -> dict[str, Share]:
    (only,) = plan(config, BOX)
    return {share.policy: share for share in only.shares}


@pytest.mark.slow
def test_a_whole_policy_by_hand(folder):
    size = tiny().size
    share = shares(config(folder))["x"]
    assert (share.parameters, share.trained) == (size, size)
    kinds = {kind: share.memory.get(kind, 0) for kind in ("copy", "reference", "gradients", "averages")}
    copied = sum(
        weight.numel() for weight in tiny().net.parameters() if weight.ndim > 1
    )  # small ones are laid out anew
    assert 4 * copied <= kinds.pop("copy") <= 4 * size
    assert kinds == {"reference": 0, "gradients": 4 * size, "averages": 8 * size}
    assert share.memory["weights"] == 4 * size


@pytest.mark.slow
def test_bfloat16_has_a_copy_and_kl_a_reference(folder):
    size = tiny().size
    memory = shares(config(folder, "train.dtype=bfloat16", "loss.kl=0.1"))["x"].memory
    matrices = sum(weight.numel() for weight in tiny().net.parameters() if weight.ndim > 1)
    words = tiny().net.get_input_embeddings().weight.numel()  # the output layer has a copy with the norm before it  # pyright: ignore
    assert 2 * matrices <= memory["copy"] <= 2 * (size + words)
    assert memory["reference"] == 4 * size


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_adapters_count_their_base_once(dtype, folder):
    sets = [f"policies.{name}.kind=lora" for name in "xy"] + [f"train.dtype={dtype}", "policies.y.lora={rank = 2}"]
    both = shares(config(folder, *sets))
    ins_and_outs = sum(
        layer.in_features + layer.out_features
        for name, layer in tiny().net.named_modules()
        if isinstance(layer, torch.nn.Linear) and name != "lm_head"
    )
    ranks = {"x": LoraConfig().rank, "y": 2}
    width = {"float32": 4, "bfloat16": 2}[dtype]
    for name, share in both.items():
        adapter = ranks[name] * ins_and_outs
        assert share.trained == adapter
        assert share.memory["weights"] == 4 * adapter + (width * tiny().size if name == "x" else 0)
        assert share.memory["averages"] == 8 * adapter
    copies = {name: share.memory["copy"] for name, share in both.items()}
    if dtype == "float32":  # networks are decoded from a copy, merged with the adapter
        assert max(copies.values()) <= 4 * tiny().size
    else:  # from one copy of the base, with the adapter beside it
        assert copies["x"] > 2 * sum(weight.numel() for weight in tiny().net.parameters() if weight.ndim > 1)
        assert copies["y"] < 2 * 4 * ranks["y"] * ins_and_outs


@pytest.mark.slow
def test_what_is_frozen_has_weights_alone(folder):
    memory = shares(config(folder, "policies.y.kind=frozen", "policies.y.dtype=bfloat16"))["y"].memory
    assert memory["weights"] == 2 * tiny().size
    assert not {"gradients", "averages", "activations"} & memory.keys()


@pytest.mark.long
def test_checkpointing_takes_fewer_activations_and_microbatches_too(folder):
    sets = ("algorithm.num_generations=8", "train.tasks_per_step=16")
    whole = shares(config(folder, *sets))["x"].memory["activations"]
    assert shares(config(folder, *sets, "optimizer.checkpointing=true"))["x"].memory["activations"] < whole
    assert shares(config(folder, *sets, "optimizer.tokens_per_microbatch=16"))["x"].memory["activations"] < whole


@pytest.mark.slow
def test_a_cache_is_bounded_by_the_engines_memory_and_is_a_rows_at_least(folder):
    free, bounded, least = (
        shares(config(folder, *more))["x"].memory["cache"]
        for more in ((), ("engine.memory_gib=0.001",), ("engine.memory_gib=1e-9",))
    )
    assert free > bounded == int(0.001 * GIB)
    assert 0 < least < 100_000


def test_a_peak_is_that_of_the_worse_half_of_a_step():
    parts = {"weights": 100, "averages": 200, "gradients": 50, "cache": 1000, "activations": 50}
    share = Share("p", "full", "m", 1, 1, parts, 0.0, 0.0, 0.0, 0.0)
    whole = Plan(BOX, "cpu", 7, (share, share), ())
    assert whole.sampling == 7 + 600 + int(1000 * 1.2)  # one policy is sampled from after the other
    assert whole.learning == 7 + 600 + 100 + int(50 * 1.2)  # all gradients are there
    assert whole.peak == whole.sampling
    assert whole.fits
    adapter = replace(share, kind="lora")
    assert Plan(BOX, "cpu", 7, (share, adapter), ()).learning == 7 + 600 + 100 + int(50 * 1.7)
    assert Plan(BOX, "cpu", 7, (adapter,), ()).sampling == 7 + 300 + int(1000 * 1.2)
    assert not Plan(Machine("small", "cpu", 1800, 1, 1, 1), "cpu", 7, (share, share), ()).fits


@pytest.mark.plans
@pytest.mark.parametrize("file", GPU_CONFIGS, ids=lambda file: file.stem)
def test_every_config_for_a_gpu_fits_the_one_that_it_names(file, monkeypatch):
    monkeypatch.setattr("coterie.models.hub.answers", lambda: False)
    (name,) = re.findall(rf"^# coterie plan configs/gpu/{file.name} --gpu (\S+)$", file.read_text(), re.MULTILINE)
    sets = ["environment.data=", "train.eval_tasks=40"] if "data =" in file.read_text() else []  # a hub's, elsewhere
    config = load_config(str(file), sets)
    plans = plan(config, gpu(name))
    check_planned(config, plans, gpu(name))
    assert 0.2 < max(plan.peak / plan.machine.memory for plan in plans) < 0.97
    if config.runtime.name == "ray":
        assert not [remark for plan in plans for remark in plan.remarks if "holds no reply" in remark]
        assert needed(config)[1] == (16 if "2x8" in file.name else 8), "as many GPUs as its name says"


@pytest.mark.slow
def test_engines_and_ranks_of_a_cluster_are_planned_apart(folder):
    sets = ["runtime.name=ray", "runtime.engines=3", "train.ranks=2", "train.device=cuda", "runtime.engine_gpus=0.5"]
    card = Machine("card", "cuda", 2 * GIB, 1e13, 1e13, 1e12)
    plans = plan(config(folder, *sets), card)
    one = shares(config(folder))["x"]
    assert [each.device for each in plans] == [
        "3 engines of x, each", "2 ranks of x, each", "3 engines of y, each", "2 ranks of y, each",
    ]  # fmt: skip
    engine, rank = (each.shares[0].memory for each in plans[:2])
    assert engine.keys() == {"weights", "copy", "cache"}
    assert engine["weights"] == one.memory["weights"]
    for kind in ("averages", "gradients", "weights"):
        assert rank[kind] == one.memory[kind] // 2
    assert rank["activations"] == one.memory["activations"]
    model = tiny()
    layers = [
        sum(4 * part.numel() for name, part in model.net.named_parameters() if name.startswith(f"model.layers.{at}."))
        for at in range(model.config.num_hidden_layers)
    ]
    assert rank["gathered"] == 4 * model.size - sum(layers) + 2 * layers[0]
    assert (plans[0].machine.memory, plans[1].machine.memory) == (GIB, 2 * GIB)
    (alone,) = plan(config(folder, "train.device=cuda"), card)
    assert plans[0].shares[0].rollout_s == pytest.approx(alone.shares[0].rollout_s / 3)
    assert plans[1].shares[0].update_s == pytest.approx(alone.shares[0].update_s / 2)
    lora = plan(config(folder, *sets, "policies.x.kind=lora", "policies.y.kind=lora"), card)
    assert [each.device for each in lora] == ["3 engines of x, y, each", "2 ranks of x, y, each"]


def test_ranks_beside_a_run_are_planned_with_it(folder):
    card = Machine("card", "cuda", 2 * GIB, 1e13, 1e13, 1e12)
    (only,) = plan(config(folder, "train.ranks=2", "train.device=cuda"), card)
    (alone,) = plan(config(folder, "train.device=cuda"), card)
    mine, whole = only.shares[0].memory, alone.shares[0].memory
    assert mine["weights"] == whole["weights"] * 3 // 2
    assert mine["averages"] == whole["averages"] // 2
    assert mine["cache"] == whole["cache"]


@pytest.mark.plans
def test_five_whole_models_do_not_fit_where_their_adapters_do(monkeypatch):
    monkeypatch.setattr("coterie.models.hub.answers", lambda: False)
    names = ("master", "qa", "shop_call", "general_call", "math")
    config = load_config(
        str(ROOT / "configs/gpu/assistants_qwen3.toml"), [f"policies.{name}.kind=full" for name in names]
    )
    plans = plan(config, GPUS["h200-141"])
    assert 174 * GIB < plans[0].peak < 240 * GIB  # what was found from outside
    with pytest.raises(ConfigError, match=r"^h200-141 has 140.4 GiB, and the run takes \d+\.\d .*kind='lora'.* GiB\)$"):
        check_planned(config, plans, GPUS["h200-141"])


@pytest.mark.long
def test_a_gpu_that_is_too_small_for_anything_says_so(folder):
    tiny_gpu = Machine("toy", "cuda", GIB // 2, 1, 1, 1)
    config_ = config(folder)
    with pytest.raises(ConfigError, match=r"even .* leaves 1\.\d GiB: take smaller models"):
        check_planned(config_, plan(config_, tiny_gpu), tiny_gpu)


@pytest.mark.slow
def test_nothing_outside_runs_and_it_is_said(folder, monkeypatch):
    from coterie.kernel import calls

    monkeypatch.setattr(calls, "run", lambda *_: pytest.fail("a call was made"))
    (only,) = plan(config(folder, environment="Tools"), BOX)
    assert any("first scene.call" in remark for remark in only.remarks)
    assert all(share.memory["cache"] > 0 and share.memory["activations"] > 0 for share in only.shares)


def test_what_a_step_asks_by_hand(folder):
    world = config(folder, "engine.max_tokens=8", environment="Sequential")
    load_ = policies.Policies(world, Shapes().load).load
    asked = asked_by(world, {name: load_(name, world.policies[name], "cpu") for name in "xy"}, world.sampling())
    assert asked.tasks == 2
    assert not asked.cut
    # two turns, in each of which both roles are asked for three replies in two tasks, and each is trained on
    assert {name: len(samples) for name, samples in asked.samples.items()} == {"x": 12, "y": 12}
    assert {len(sample.completion_ids) for sample in asked.samples["x"]} == {world.engine.max_tokens}


def memory_of(config) -> float | None:
    assert isinstance(config.engine, TransformersConfig)
    return config.engine.memory_gib


@pytest.mark.slow
def test_a_run_keeps_what_its_engine_found_and_goes_on_with_it(folder, tmp_path, monkeypatch):
    found = [4.0, 2.0, 1.0, 0.5]
    monkeypatch.setattr("coterie.engines.decoding.budget_gib", lambda left: found[0])
    run = train(config(folder), tmp_path / "run")
    assert memory_of(run.config) == 4.0
    found.pop(0)  # less is free now
    train(config(folder, "train.steps=3"), resume=run.folder)
    assert memory_of(run.config) == 4.0
    with pytest.raises(CheckpointError, match=r"was run with engine\.memory_gib = 4\.0, not 3"):
        train(config(folder, "train.steps=4", "engine.memory_gib=3"), resume=run.folder)
    assert memory_of(load(run).models.config) == 2.0  # to play, what is free here
    assert memory_of(load(config(folder, "engine.memory_gib=3")).models.config) == 3.0  # as somebody said


@pytest.mark.slow
def test_a_large_model_that_cannot_fit_is_refused_before_it_is_loaded(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "SMALL", 0)
    monkeypatch.setattr(machines, "total_bytes", lambda device: 100 << 20)
    monkeypatch.setattr(loading, "load_model", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(ConfigError, match=r"^weights, and what training keeps of them, take .* coterie plan"):
        train(config(folder), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_dry_run_tries_one_tiny_step_and_keeps_nothing(folder, tmp_path, monkeypatch):
    before, settings = {file: file.read_bytes() for file in folder.iterdir()}, config(folder)
    monkeypatch.chdir(tmp_path)
    done = dry_run(settings)
    assert done.tasks == 2
    (only,), (measured,) = done.plans, done.measured
    assert measured > 100 << 20
    assert all(share.memory["activations"] > 0 for share in only.shares)
    assert not list(tmp_path.iterdir())
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_a_dry_run_asks_no_server(folder, tmp_path):
    sets = ["policies.y.kind=remote", "policies.y.model=m", "policies.y.remote.url=http://localhost:1/v1"]
    from coterie.report.planned import try_out

    told = list(try_out(load_config("tests/toys.py:Agree", [*SETS, f"policies.x.model={folder}", *sets])))
    assert told[-1] == "# no step was tried: a server plays a policy, and it may charge for requests\n"


def test_the_command_tells_and_refuses(folder, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(config(folder).toml())
    code, out, err = call("plan", str(file), "--gpu", "l4-24")
    assert (code, err) == (0, "")
    assert out.startswith("l4-24 (cuda:0): ")
    assert "it fits" in out
    code, out, _ = call("plan", str(file), "--gpu", "l4-24", "--json")
    (told,) = json.loads(out)
    assert told["policies"]["x"]["parameters"] == tiny().size
    code, out, _ = call("plan", "tally", "--model", str(folder), "--gpu", "l4-24", "--json")
    assert {policy["parameters"] for policy in json.loads(out)[0]["policies"].values()} == {tiny().size}
    code, _, err = call("plan", str(file), "--gpu", "h100")
    assert code == 2
    assert "did you mean 'h100-80'" in err


@pytest.mark.long
@pytest.mark.parametrize(("kind", "dtype"), [("full", "float32"), ("lora", "bfloat16")])
def test_what_is_predicted_is_within_15_percent_of_what_is_taken(kind, dtype, tmp_path):
    from benchmarks.models import random_qwen3
    from benchmarks.plan import tried

    save_model(random_qwen3(4096, 512, 1536, layers=4, heads=8), tmp_path / "model")
    done = tried(str(tmp_path / "model"), kind, dtype)
    assert 0.85 < done["predicted"] / done["measured"] < 1.15


@pytest.mark.slow
def test_each_device_that_is_named_is_planned_and_two_names_of_one_are_one(folder):
    card = Machine("card", "cuda", 8 * GIB, 1e12, 1e12, 1e11)
    apart = plan(config(folder, "policies.x.device=cuda:0", "policies.y.device=cuda:1"), card)
    assert [[share.policy for share in each.shares] for each in apart] == [["x"], ["y"]]
    (together,) = plan(config(folder, "policies.x.device=cuda:0", "policies.y.device=cuda"), card)
    assert len(together.shares) == 2
    mixed = plan(config(folder, "policies.x.device=cpu", "train.device=cuda"), card)
    assert {each.machine.kind for each in mixed} == {"cpu", "cuda"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "has", "kernels"), [("float32", True, 0.0), ("bfloat16", True, 0.15), ("bfloat16", False, 0.0)]
)
def test_a_process_takes_what_it_takes_now_and_what_libraries_will(dtype, has, kernels, folder, monkeypatch):
    monkeypatch.setattr(planning, "has_halves", lambda: has)
    (only,) = plan(config(folder, f"train.dtype={dtype}"), BOX, process=1000)
    assert only.process == int(1000 + 0.12 * GIB + kernels * GIB)
    (card,) = plan(config(folder, f"train.dtype={dtype}"), GPUS["l4-24"], process=1000)
    assert card.process == int((0.7 + 0.36 + (0.38 if dtype == "bfloat16" else 0)) * GIB)


@pytest.mark.slow
def test_large_networks_are_decoded_by_graphs_in_float32_too(folder, monkeypatch):
    monkeypatch.setattr(planning, "LARGE", 1000)
    (card,) = plan(config(folder), GPUS["l4-24"], process=1000)
    assert card.process == int((0.7 + 0.36 + 0.38) * GIB)


@pytest.mark.slow
def test_a_token_takes_a_quarter_where_it_comes_by_a_graph(folder, monkeypatch):
    """Of so small a network nearly all is the least that a layer takes."""
    took = []
    for recorded in (True, False):
        monkeypatch.setattr(measured, "usual_layers", lambda net, recorded=recorded: recorded)
        (card,) = plan(config(folder), GPUS["l4-24"], process=1000)
        took.append(sum(share.rollout_s for share in card.shares))
    assert took[1] / took[0] == pytest.approx(4, rel=0.01)


@pytest.mark.slow
def test_a_validation_asks_once_where_training_draws_several(folder):
    sets = ("train.tasks_per_step=1", "train.eval_tasks=50", "eval.tasks=50", "algorithm.num_generations=20")
    cache = shares(config(folder, *sets))["x"].memory["cache"]
    policy = Policy("x", tiny())
    prompt, costs = len(policy.render("pick", "a")), Decoder(policy).costs
    assert cache == max(costs.of(20, 1, prompt, 1), costs.of(50, 50, prompt, 1), costs.of(50, 25, prompt, 1))


@pytest.mark.slow
def test_more_tasks_fill_a_microbatch_and_no_more(folder):
    sets = ["optimizer.tokens_per_microbatch=400", "algorithm.num_generations=2"]
    taken = [
        shares(config(folder, *sets, f"train.tasks_per_step={tasks}"))["x"].memory["activations"]
        for tasks in (2, 8, 64, 640)
    ]
    assert taken[0] < taken[1] < taken[2] == taken[3]


@pytest.mark.slow
def test_gradients_are_no_activations(folder):
    sets = ["algorithm.num_generations=2", "train.tasks_per_step=1"]
    assert shares(config(folder, *sets))["x"].memory["activations"] < 2 * tiny().size * 4


@pytest.mark.slow
def test_policies_that_differ_by_their_adapters_alone_are_measured_apart(folder):
    sets = [f"policies.{name}.kind=lora" for name in "xy"]
    both = shares(config(folder, *sets, "policies.x.lora.rank=2", "policies.y.lora.rank=64"))
    alone = shares(config(folder, *sets, "policies.x.lora.rank=64", "policies.y.lora.rank=64"))
    assert both["x"].memory["activations"] < alone["x"].memory["activations"]
    assert both["y"].memory["activations"] == alone["y"].memory["activations"]


@pytest.mark.slow
def test_policies_of_one_shape_are_measured_once_by_what_takes_the_most(folder, monkeypatch):
    """Roles of another prompt ask more, and their policies are measured with the heavier micro-batch."""
    heaviest, measure = [], measured.Measured._update
    monkeypatch.setattr(measured, "KNOWN", {})
    monkeypatch.setattr(
        measured.Measured, "_update", lambda self, name, batch: heaviest.append(batch) or measure(self, name, batch)
    )
    roles = [f"team.{role}={role}" for role in ("clerk", "cashier")]
    models = [f"policies.{role}.model={folder}" for role in ("clerk", "cashier")]
    errand = load_config("errand", [*SETS[2:], *roles, *models])
    both = shares(errand)
    assert len(heaviest) == 1
    assert both["clerk"].memory["activations"] == both["cashier"].memory["activations"]
    monkeypatch.setattr(measured.Measured, "_shape", lambda self, name: (name,))
    apart = shares(errand)
    assert both["clerk"].memory["activations"] == max(share.memory["activations"] for share in apart.values())
    assert len({share.memory["activations"] for share in apart.values()}) == 2


@pytest.mark.long
def test_seconds_grow_with_tasks_and_with_what_is_computed_again(folder):
    def of(*sets: str, machine: Machine = BOX) -> Share:
        (only,) = plan(config(folder, "train.dtype=bfloat16", *sets), machine)
        return only.shares[0]

    first, more = of("train.tasks_per_step=4"), of("train.tasks_per_step=8")
    assert more.update_s == pytest.approx(2 * first.update_s)
    assert more.rollout_s > first.rollout_s
    longer = of("train.eval_tasks=10", "eval.tasks=100")
    assert longer.validation_s > of("train.eval_tasks=5", "eval.tasks=100").validation_s > 0
    assert longer.test_s > longer.validation_s
    assert longer.rollout_s == first.rollout_s
    again = of("train.tasks_per_step=4", "optimizer.checkpointing=true")
    assert again.update_s == pytest.approx(4 / 3 * first.update_s)
    fast = of("train.tasks_per_step=4", machine=replace(BOX, bfloat16=4e11))
    assert fast.update_s == pytest.approx(first.update_s / 4)


def test_a_processor_is_measured(monkeypatch):
    speeds = {torch.float32: 1.0, torch.bfloat16: 2.0}
    monkeypatch.setattr(machines, "_products", lambda dtype, device: speeds[dtype])
    found = machines.here("cpu")
    assert (found.kind, found.float32, found.bfloat16) == ("cpu", 1.0, 2.0)
    assert found.bandwidth > 1e8
    assert gpu("H100-80") is GPUS["h100-80"]


def test_few_kernels_are_kept_where_a_processor_computes_in_bfloat16(folder, monkeypatch):
    for dtype, kept in (("float32", None), ("bfloat16", "64")):
        monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
        TeamModels(config(folder, f"train.dtype={dtype}"))
        assert os.environ.get("LRU_CACHE_CAPACITY") == kept
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    TeamModels(config(folder, "train.dtype=bfloat16"))
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"


@pytest.mark.slow
def test_a_dry_run_moves_nothing(folder, monkeypatch):
    told: list[dict[str, torch.Tensor]] = []

    class Watched(TeamModels):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            there = self.policies["x"].model.net.state_dict()
            told.extend(({name: weight.clone() for name, weight in there.items()}, there))

    monkeypatch.setattr(dry, "TeamModels", Watched)
    dry_run(config(folder))
    before, after = told
    assert all(torch.allclose(after[name], weight, rtol=0, atol=1e-9) for name, weight in before.items())


@pytest.mark.slow
def test_a_dry_run_changes_no_world(folder, monkeypatch):
    from coterie.kernel import calls

    monkeypatch.setattr(calls, "run", lambda function, *_: pytest.fail(f"{function} was called"))
    done = dry_run(config(folder, "environment.effect=external", environment="Tools"))
    assert done.measured[0] > 0


@pytest.mark.slow
def test_a_dry_run_leaves_the_runs_alone_that_it_plays_against(folder, tmp_path):
    run = train(config(folder), tmp_path / "first")
    before = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    sets = ["policies.y.kind=frozen", f"policies.y.model={run.folder}/y"]
    assert "#" in dry.resolved(config(folder, *sets)).policies["y"].model
    assert sorted(path.name for path in (run.folder / "checkpoints").iterdir()) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_hidden_layers": "many"}, "mend its config.json"),
        ({"num_hidden_layers": 0}, "mend its config.json"),
        ({"hidden_size": -5}, "mend it, or name another model"),
        ({"model_type": "nothing"}, "mend its config.json"),
    ],
)
def test_a_damaged_config_is_one_line(change, told, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "damaged")
    file = tmp_path / "damaged/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    model = f"policies.team.model={tmp_path / 'damaged'}"
    code, _, err = call("plan", "plan_path", "--set", model)
    assert (code, err.count("\n")) == (2, 1)
    assert told in err
    code, _, err = call("train", "plan_path", "--out", str(tmp_path / "run"), "--set", model)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("coterie: policies.team")


@pytest.mark.slow
def test_a_config_alone_is_enough_and_no_model_is_one_line(folder, tmp_path):
    (tmp_path / "shape").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "shape")
    model = Shapes().load(str(tmp_path / "shape"), where="policies.p.model")
    assert (model.size, model.tokenizer) == (tiny().size, None)
    (only,) = plan(config(tmp_path / "shape"), BOX)
    assert only.shares[0].parameters == tiny().size
    assert any("no tokenizer of x, y here" in remark for remark in only.remarks)
    with pytest.raises(ConfigError, match="comes with no model to start from"):
        Shapes().load("", where="policies.p.model")


def test_adapters_of_shapes_are_shapes(folder):
    settings = config(folder, "policies.x.kind=lora")
    model = policies.Policies(settings, Shapes().load).load("x", settings.policies["x"], "cpu").model
    assert {weight.device.type for weight in model.net.parameters()} == {"meta"}


def test_play_that_bears_no_nonsense_is_one_line(folder, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from coterie import Environment, Task\n\n\nclass Mine(Environment):\n    roles = ('a',)\n\n"
        "    def task(self, split, index):\n        return Task(f'{split}-{index}', split)\n\n"
        "    async def play(self, task, scene):\n        reply = await scene.ask('a', 'say a number')\n"
        "        scene.reward('a', float(int(reply.text)))\n"
    )
    code, _, err = call("plan", f"{tmp_path}/mine.py:Mine", "--set", f"policies.team.model={folder}")
    assert (code, err.count("\n")) == (2, 1)
    assert "play must bear whatever is said" in err


def test_what_a_plan_cannot_know_it_says(folder):
    (only,) = plan(config(folder, "engine.memory_gib=1e-9"), BOX)
    assert any("holds no reply of x" in remark for remark in only.remarks)
    sets = ["policies.y.kind=remote", "policies.y.model=m", "policies.y.remote.url=http://localhost:1/v1"]
    (only,) = plan(load_config("tests/toys.py:Agree", [*SETS, f"policies.x.model={folder}", *sets]), BOX)
    assert only.remarks == ("y is played by a server, and takes nothing here",)


@pytest.mark.slow
def test_what_is_measured_is_the_process_own_and_not_that_of_who_started_it():
    show = "from coterie.run.dry import resident; print(resident())"
    large = (
        f"import subprocess, sys; held = b'x' * (2 << 30); subprocess.run([sys.executable, '-c', {show!r}], check=True)"
    )
    alone, started = (
        int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for code in (show, large)
    )
    assert 0 < started < 1.2 * alone < 2 << 30
