"""On a CUDA device: engine, learner, packs, bfloat16 and resume, against the CPU."""

from __future__ import annotations

import copy
import os
import shutil
from dataclasses import replace
from random import Random

import pytest
import torch

from benchmarks.models import random_qwen3
from benchmarks.plan import tried
from coterie import load_config, train, update
from coterie.engines.transformers import TransformersEngine
from coterie.kernel.engine import Request
from coterie.kernel.loops import Hosted, drive
from coterie.learning.batch import rows_of
from coterie.learning.forward import way_of
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models.attention import Split, parts
from coterie.models.load import Model, save_model
from coterie.run.policies import Policies, settle
from tests.learning.test_learner import experience, gradient
from tests.runs import answered, cut_back, untimed, weights
from tests.toys import policies, tiny

DEVICE = os.environ.get("COTERIE_TEST_DEVICE", "cuda")
"""Another device tries these tests themselves."""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def there(model: Model) -> Model:
    """The same weights on the device."""
    other = copy.copy(model)
    other.net = copy.deepcopy(model.net).to(DEVICE)  # pyright: ignore[reportArgumentType]
    return other


def wave() -> list[Request]:
    return [
        Request((f"t{at}", 0, "0@0", "a"), "p", "a", "x", tuple(range(5, 12 + at % 3)), (at, at + 9), 1.0, 1.0, 12, ())
        for at in range(6)
    ]


def sampled(policy: Policy):
    with Hosted(TransformersEngine({"p": policy})) as engine:
        return [sample for samples in answered(engine, wave()) for sample in samples]


def test_the_engine_samples_what_it_samples_on_the_cpu():
    model = tiny(scale=3.0)
    mine, theirs = sampled(Policy("p", there(model))), sampled(Policy("p", model))
    same = [(one, other) for one, other in zip(mine, theirs, strict=True) if one.completion_ids == other.completion_ids]
    assert len(same) >= 0.9 * len(mine)  # a token whose cumulated probability lies at the last bit is another
    for one, other in same:
        assert list(one.logprobs) == pytest.approx(list(other.logprobs), rel=0, abs=1e-3)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_learners_gradient_is_the_cpus_packs_and_all(checkpointing):
    model, rows = tiny(scale=3.0), rows_of(experience(), Clip())
    settings = {"lr": 1e-3, "clip_norm": 1e9, "checkpointing": checkpointing}
    here, other = (
        gradient(LocalLearner(policies({"p": one}, **settings), Clip(), 10), rows).cpu()
        for one in (model, there(model))
    )
    assert float((here - other).norm() / here.norm()) < 1e-4
    alone = LocalLearner(policies({"p": there(model)}, **settings, tokens_per_microbatch=1), Clip(), 10)
    assert float((gradient(alone, rows).cpu() - other).norm() / other.norm()) < 1e-4  # a pack a micro-batch


def test_bfloat16_samples_from_a_copy_that_sync_refreshes():
    model = there(tiny(scale=3.0))
    policy = Policy("p", model, dtype=torch.bfloat16)
    engine = TransformersEngine({"p": policy})
    with Hosted(engine) as hosted:
        before = answered(hosted, wave())
        with torch.no_grad():
            for weight in model.net.parameters():
                weight.mul_(0.5)
        assert answered(hosted, wave()) == before
        drive(hosted.sync("p", 3))
        after = answered(hosted, wave())
    assert after != before
    assert after[0][0].version == 3


def wide() -> Model:
    """Heads that share keys, of a size that every kernel takes."""
    model = random_qwen3(448, 256, 512, layers=4, heads=8, kv_heads=2, head_dim=32)
    with torch.no_grad():
        for weight in model.net.parameters():
            weight.mul_(2)
    return model


def test_a_recorded_graph_samples_what_modules_sample():
    """Rows end one by one, by tokens and by limits, until the others move together, more than once."""
    chance = Random(0)
    prompts = [tuple(chance.randrange(3, 250) for _ in range(9 + at % 4)) for at in range(6)]
    asked = [
        Request((f"t{at}", 0, "0@0", "a"), "p", "a", "x", prompt, tuple(range(10)), 1.0, 1.0, 20 + 8 * at, ())
        for at, prompt in enumerate(prompts)
    ]
    for dtype, near in ((torch.float32, 1e-3), (torch.bfloat16, 0.05)):
        found = []
        for graphs in (True, False):
            policy = Policy("p", replace(there(wide()), lean=False, graphs=graphs), dtype=dtype)
            engine = TransformersEngine({"p": policy})
            assert engine._decoders["p"].graphs == (graphs and DEVICE == "cuda")
            with Hosted(engine) as hosted:
                found.append([sample for samples in answered(hosted, asked) for sample in samples])
                assert [sample for samples in answered(hosted, asked) for sample in samples] == found[-1]
        same = [(one, other) for one, other in zip(*found, strict=True) if one.completion_ids == other.completion_ids]
        assert len(same) >= (0.9 if dtype == torch.float32 else 0.3) * len(found[0])
        for one, other in same:
            apart = [abs(mine - theirs) for mine, theirs in zip(one.logprobs, other.logprobs, strict=True)]
            assert sum(apart) / len(apart) < near


@pytest.mark.parametrize("packs", [[(40, [5, 9, 2])], [(40, [5, 9, 2]), (13, [4, 4]), (0, [7])]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_by_parts_is_that_of_a_processor(dtype, packs):
    generator = torch.Generator().manual_seed(0)
    total = sum(shared + sum(lengths) for shared, lengths in packs)
    given = [torch.randn(1, heads, total, 64, generator=generator).requires_grad_() for heads in (8, 2, 2)]
    weights = torch.randn(1, 8, total, 64, generator=generator)
    found = []
    for device, kind in (("cpu", torch.float32), (DEVICE, dtype)):
        query, key, value = (tensor.to(device, kind) for tensor in given)
        out = parts(query, key, value, Split.of(packs, torch.device(device)), 0.125)
        gradients = torch.autograd.grad((out.float() * weights.to(device)).sum(), given)
        found.append([out.detach().float().cpu(), *gradients])
    for mine, theirs in zip(*found, strict=True):
        assert float((mine - theirs).norm() / mine.norm()) < (1e-5 if dtype == torch.float32 else 0.02)


def test_a_networks_self_test_finds_every_fast_way(tmp_path):
    save_model(wide(), tmp_path / "wide")
    sets = [f"policies.team.model={tmp_path / 'wide'}", f"train.device={DEVICE}", "train.dtype=bfloat16"]
    config = load_config("tests/toys.py:Agree", sets)
    model = Policies(config).make("team", config.policies["team"]).model
    assert (model.pads, model.packs, model.splits) == (True, True, True)
    assert (model.lean, model.graphs) == (True, DEVICE == "cuda")
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_update_of_long_packs_is_the_same_to_the_bit(checkpointing):
    settle(deterministic=True)
    model = there(wide())
    rows = rows_of(experience(groups=3, size=6, prompt=300, longest=60), Clip())
    found = []
    for _ in range(3):
        model.net.zero_grad(set_to_none=True)
        policy = Policy("p", model, optimizer=OptimizerConfig(checkpointing=checkpointing), dtype=torch.bfloat16)
        learner = LocalLearner({"p": policy}, Clip(), 10)
        assert "parts" in {way_of(model, batch) for batch in learner.microbatches("p", rows)}
        found.append(gradient(learner, rows))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_tiny_step_takes_what_is_planned_of_it(kind, dtype, tmp_path):
    save_model(random_qwen3(4096, 512, 1536, layers=4, heads=8), tmp_path / "model")
    done = tried(str(tmp_path / "model"), kind, dtype, f"train.device={DEVICE}")
    assert 0.85 < done["predicted"] / done["measured"] < 1.15


@pytest.mark.parametrize("size", [tiny, wide])
def test_a_resume_is_exact_and_one_update_is_made_again(size, tmp_path):
    save_model(size(), tmp_path / "model")
    sets = [f"policies.team.model={tmp_path / 'model'}", f"train.device={DEVICE}", "train.steps=3",
            "train.tasks_per_step=4", "train.eval_tasks=8", "train.eval_every=1", "train.checkpoint_every=1",
            "train.keep_checkpoints=9", "train.episodes_every=1", "algorithm.num_generations=3"]  # fmt: skip
    for dtype in ("float32", "bfloat16"):
        config = load_config("tests/toys.py:Agree", [*sets, f"train.dtype={dtype}"])
        whole = train(config, tmp_path / dtype).folder
        folder = tmp_path / f"{dtype}-again"
        shutil.copytree(whole, folder)
        cut_back(folder, 1)
        train(config, resume=folder)
        assert untimed(folder) == untimed(whole)
        assert weights(folder, 3) == weights(whole, 3)
        assert update(whole, 2).differs == ()
