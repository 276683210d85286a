"""Adapters over one base: each is trained as if it were alone, and the base by nobody."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace

import pytest
import torch

from coterie import Ablation, load, load_config, train, update
from coterie.errors import CheckpointError, ConfigError
from coterie.kernel.team import Graded
from coterie.learning.batch import pack
from coterie.learning.forward import lay_out, score
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip, PolicyGradient
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models.adapters import Adapted, adapted
from coterie.models.load import Model, checkpoint_activations, load_model, save_model
from coterie.run.weights import TeamModels
from tests.learning.test_learner import experience, row
from tests.runs import cut_back, untimed, weights
from tests.toys import tiny

LORA = {"rank": 4, "alpha": 8.0, "where": "policies.a"}


def base(scale: float = 3.0) -> Model:
    model = tiny(scale=scale)
    model.net.requires_grad_(False)
    return model


def moved(model: Adapted) -> Adapted:
    """One whose B is not zero, so that A has a gradient too."""
    with torch.no_grad():
        for number, weight in enumerate(model.trained):
            weight.add_(0.1 * torch.sin(torch.arange(weight.numel()).view_as(weight) + number))
    return model


def pair(shared: Model) -> tuple[Adapted, Adapted]:
    return moved(adapted(shared, seed=1, **LORA)), moved(adapted(shared, seed=2, **LORA | {"rank": 2}))


def rows():
    return [row(range(5, 15 + number), 3) for number in range(4)]


def gradients(model: Model) -> list[torch.Tensor]:
    return [torch.zeros_like(weight) if weight.grad is None else weight.grad.clone() for weight in model.trained]


def logprobs(model: Model) -> torch.Tensor:
    return score(model, lay_out(pack(rows(), 400)), torch.float32).logprobs


def test_an_adapter_changes_nothing_at_first_and_its_base_is_in_memory_once():
    shared = base()
    first, second = (adapted(shared, seed=seed, **LORA) for seed in (1, 2))
    assert torch.equal(logprobs(first), logprobs(shared))
    tensors = {id(weight) for model in (shared, first, second) for weight in model.net.parameters()}
    assert len(tensors) == len(list(shared.net.parameters())) + len(first.trained) + len(second.trained)
    assert not torch.equal(first.trained[0], second.trained[0])
    assert torch.equal(first.trained[0], adapted(shared, seed=1, **LORA).trained[0])
    assert {weight.requires_grad for weight in shared.net.parameters()} == {False}
    assert first.origin == adapted(shared, seed=1, **LORA).origin
    assert len({first.origin, second.origin, shared.origin}) == 3


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_of_two_adapters_are_those_of_separate_runs(checkpointing):
    """Forward, forward, backward, backward: where one network holds both adapters, one of them gets nothing."""
    together = pair(base())
    apart = pair(base())[0], pair(base())[1]
    if checkpointing:
        for model in together:
            checkpoint_activations(model.net)
            model.net.train()
    sums = [logprobs(model).sum() for model in together]
    (sums[0] + sums[1]).backward()
    for model, alone in zip(together, apart, strict=True):
        logprobs(alone).sum().backward()
        for mine, other in zip(gradients(model), gradients(alone), strict=True):
            assert other.norm() > 0
            assert float((mine - other).norm() / other.norm()) < 1e-6


def learner(models, loss=PolicyGradient(), **settings) -> LocalLearner:  # noqa: B008
    config = OptimizerConfig(**{"lr": 1e-2, **settings})
    return LocalLearner(
        {name: Policy(name, model, "lora", optimizer=config) for name, model in models.items()}, loss, 9
    )


def test_each_adapter_moves_by_its_own_samples_alone_and_the_base_never():
    shared = base()
    first, second = pair(shared)
    before = copy.deepcopy((shared.net.state_dict(), first.weights(), second.weights()))
    team = learner({"p": first, "q": second}, weight_decay=0.1)
    for name in ("p", "q"):
        trained = {id(weight) for group in team.trainees[name].optimizer.param_groups for weight in group["params"]}
        assert trained == {id(weight) for weight in {"p": first, "q": second}[name].trained}
    team.update({"p": experience(), "q": []}, 0)
    assert all(torch.equal(weight, before[0][name]) for name, weight in shared.net.state_dict().items())
    assert not all(torch.equal(weight, before[1][name]) for name, weight in first.weights().items())
    assert all(torch.equal(weight, before[2][name]) for name, weight in second.weights().items())
    alone = learner({"p": pair(base())[0]}, weight_decay=0.1)
    alone.update({"p": experience()}, 0)
    for name, weight in alone.weights("p").items():
        assert torch.equal(weight, first.weights()[name])


def test_two_adapters_of_one_base_are_trained_in_one_update_as_apart():
    first, second = pair(base())
    team = learner({"p": first, "q": second}, clip_norm=0.1)
    q = [Graded(replace(one.sample, policy="q"), one.advantage, one.weight, one.group) for one in experience(4)]
    team.update({"p": experience(), "q": q}, 0)
    for place, (name, graded) in enumerate({"p": experience(), "q": q}.items()):
        alone = learner({name: pair(base())[place]}, clip_norm=0.1)
        alone.update({name: graded}, 0)
        for key, weight in alone.weights(name).items():
            assert torch.equal(weight, team.weights(name)[key])


def test_the_base_is_what_an_adapter_is_held_to_without_a_copy():
    shared = base()
    model = adapted(shared, seed=1, **LORA)
    team = learner({"p": model}, Clip(kl=0.1))
    assert team.trainees["p"].reference is shared
    assert team.update({"p": experience()}, 0)["p"].metrics["kl_k3"] == 0.0
    assert team.update({"p": experience()}, 1)["p"].metrics["kl_k3"] > 0


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")
def test_what_is_written_is_a_peft_folder_and_comes_back(tmp_path):
    from peft import PeftModel

    shared = base()
    save_model(shared, tmp_path / "base")
    model = moved(adapted(shared, seed=1, source="some/base", **LORA))
    model.save(tmp_path / "adapter", model.weights())
    theirs = PeftModel.from_pretrained(load_model(str(tmp_path / "base")).net, tmp_path / "adapter")
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert torch.allclose(theirs(input_ids=ids).logits, model.net(input_ids=ids).logits, atol=1e-5)
    assert theirs.peft_config["default"].base_model_name_or_path == "some/base"
    layers = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert layers == sorted(layers), "equal runs have equal files"
    other = adapted(shared, seed=9, **LORA)
    other.take(tmp_path / "adapter")
    assert torch.equal(logprobs(other), logprobs(model))
    with pytest.raises(CheckpointError, match="an adapter of another shape than policies"):
        adapted(shared, seed=1, **LORA | {"rank": 3}).take(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="holds no adapter"):
        other.take(tmp_path / "base")


def test_targets_choose_layers_and_one_that_is_nowhere_is_one_line():
    model = adapted(base(), seed=1, targets=("q_proj", "v_proj"), **LORA)
    assert {name.split(".")[-3] for name in model.weights()} == {"q_proj", "v_proj"}
    names = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
    with pytest.raises(ConfigError, match=rf"^policies\.a\.lora\.targets names 'nowhere'; linear layers .* {names}$"):
        adapted(base(), seed=1, targets=("nowhere",), **LORA)


SETS = ["team.a=x", "team.b=y", "train.steps=4", "train.tasks_per_step=4", "train.eval_tasks=10", "train.eval_every=2",
        "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes_every=1", "algorithm.num_generations=4",
        "optimizer.lr=1e-2", "policies.x.kind=lora", "policies.y.kind=lora", "policies.y.lora.rank=4"]  # fmt: skip


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("adapters") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return [*SETS, f"policies.x.model={folder}", f"policies.y.model={folder}"]


@pytest.fixture(scope="module")
def made(sets, tmp_path_factory):
    return train(load_config("tests/toys.py:Agree", sets), tmp_path_factory.mktemp("adapters") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_run_of_adapters_goes_on_exactly_where_it_was_stopped(step, sets, made, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(made.folder, folder)
    cut_back(folder, step)
    train(load_config("tests/toys.py:Agree", sets), resume=folder)
    assert untimed(folder) == untimed(made.folder)
    assert weights(folder, 4) == weights(made.folder, 4)
    assert len(weights(folder, 4)) == 2


def test_its_updates_are_made_again_from_what_was_saved(made):
    again = update(made, 2)
    assert (again.compared, again.differs) == ("weights and metrics", ())


def test_a_run_of_adapters_answers_ablations(made):
    team = load(made)
    changes = [Ablation.parse("swap", "a,b"), Ablation.parse("mute", "a"), Ablation.parse("replace", "b=base")]
    before, after = team.ablate(changes, tasks=20)
    assert before.tasks == 20
    assert len(after) == 3


def test_a_bfloat16_base_has_float32_adapters_and_the_engine_no_copy(sets):
    from coterie.engines.decoding import Decoder

    models = TeamModels(load_config("tests/toys.py:Agree", [*sets, "train.dtype=bfloat16"]), training=True)
    policy = models.policies["x"]
    assert {weight.dtype for weight in policy.model.trained} == {torch.float32}
    frozen = [weight for weight in policy.model.net.parameters() if not weight.requires_grad]
    assert {weight.dtype for weight in frozen} == {torch.bfloat16}
    assert {buffer.dtype for buffer in policy.model.net.buffers() if buffer.is_floating_point()} == {torch.float32}
    assert Decoder(policy).net is policy.model.net
    assert models.policies["y"].model.base is policy.model.base  # pyright: ignore[reportAttributeAccessIssue]


def test_an_adapters_settings_have_no_effect_on_a_whole_policy(sets):
    with pytest.raises(ConfigError, match=r"lora.* has no effect.* kind = 'full' has no adapter"):
        load_config("tests/toys.py:Agree", [*sets, "policies.y.kind=full"])


def test_a_resume_with_another_adapter_names_the_setting(sets, made):
    with pytest.raises(
        CheckpointError, match=r"was run with policies\.y\.lora\.rank = 4, not 5; a run continues with its own"
    ):
        train(load_config("tests/toys.py:Agree", [*sets, "policies.y.lora.rank=5"]), resume=made.folder)
