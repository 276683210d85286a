"""The self-test of networks at load: what agrees with a plain forward, and what is found out where it does not."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

from coterie.checks import families
from coterie.checks.families import check_family
from coterie.engines import decoding
from coterie.engines.decoding import Decoder
from coterie.engines.graphs import Graphs
from coterie.engines.lean import Lean
from coterie.engines.steps import Modules
from coterie.errors import ConfigError
from coterie.learning import forward, learner, masks
from coterie.learning.batch import Row
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import PolicyGradient
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models import attention
from tests import families as made
from tests.families import FAMILIES, family, found
from tests.toys import policies, tiny

ROWS = re.findall(r"^\| `(\w+)` \|.*$", (Path(__file__).parents[2] / "docs/families.md").read_text(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
def test_the_table_of_the_docs_says_how_each_family_is_run(name):
    if name not in CONFIG_MAPPING:
        pytest.skip("this version of Transformers does not know it")
    page = (Path(__file__).parents[2] / "docs/families.md").read_text()
    row = found(name)
    if f"Transformers {'.'.join(transformers.__version__.split('.')[:2])}," in page:
        assert row in page


def test_the_table_has_nothing_else_and_enough_that_is_exact():
    page = (Path(__file__).parents[2] / "docs/families.md").read_text()
    assert sorted(ROWS) == ROWS == sorted(FAMILIES)
    assert page.count("| exact, ") == 74
    assert page.count("| longer than its window |") == 20


def rows(count: int = 4) -> list[Row]:
    """Replies to prompts that begin alike, all longer than a window of 8."""
    torch.manual_seed(3)
    ids = torch.randint(5, 300, (count, 40)).tolist()
    prompts = [(*ids[0][:20], *line[20 : 24 + number]) for number, line in enumerate(ids)]
    return [
        Row(prompt, tuple(line[28:]), (0.0,) * 12, 1.0 + number, 0.1, 1.0, "g")
        for number, (prompt, line) in enumerate(zip(prompts, ids, strict=True))
    ]


def plain_gradient(model, rows: list[Row]) -> torch.Tensor:
    net = copy.deepcopy(model.net)
    for row in rows:
        logits = net(input_ids=torch.tensor([[*row.prompt_ids, *row.completion_ids]]), use_cache=False).logits[0]
        replies = torch.log_softmax(logits[len(row.prompt_ids) - 1 : -1, : model.vocabulary].float(), dim=-1)
        logprobs = replies.gather(-1, torch.tensor(row.completion_ids)[:, None])
        (-(row.advantage * row.token_weight) * logprobs.sum()).backward()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    "name", ["mistral", "gemma2", "gpt_oss", "llama4_text", "olmo3", "granite", "lfm2", "seed_oss"]
)
def test_the_learners_gradient_is_that_of_plain_forwards_past_the_window(name, checkpointing):
    policy = Policy("p", family(name), optimizer=OptimizerConfig(checkpointing=checkpointing))
    check_family(policy)
    trainer = LocalLearner({"p": policy}, PolicyGradient(), 1)
    trainer.accumulate("p", rows())
    gradient = torch.cat([p.grad.flatten() for p in policy.model.net.parameters() if p.grad is not None])
    expected = plain_gradient(policy.model, rows())
    assert float((gradient - expected).norm() / expected.norm()) < 5e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "gemma2", "gpt_oss", "llama4_text", "olmo3", "seed_oss"])
def test_so_it_is_of_rows_that_share_nothing_and_need_no_mask_but_for_a_window(name):
    policy = Policy("p", family(name))
    check_family(policy)
    trainer = LocalLearner({"p": policy}, PolicyGradient(), 1)
    apart = [replace(row, prompt_ids=row.prompt_ids[number * 7 :]) for number, row in enumerate(rows(3))]
    assert all(len(pack.rows) == 1 for batch in trainer.microbatches("p", apart) for pack in batch)
    trainer.accumulate("p", apart)
    gradient = torch.cat([p.grad.flatten() for p in policy.model.net.parameters() if p.grad is not None])
    expected = plain_gradient(policy.model, apart)
    assert float((gradient - expected).norm() / expected.norm()) < 5e-5


@pytest.mark.parametrize("name", ["mistral", "llama4_text"])
def test_what_is_computed_by_parts_within_a_window_takes_a_mask_beyond_it(name, monkeypatch):
    monkeypatch.setitem(made.SMALL, "sliding_window", 30)
    monkeypatch.setitem(made.FAMILIES, name, {**FAMILIES[name], "attention_chunk_size": 30})
    monkeypatch.setattr(attention, "ROW", -(1 << 40))
    policy = Policy("p", family(name))
    check_family(policy)
    assert policy.model.splits
    for some in (rows(), rows(1), [replace(row, prompt_ids=row.prompt_ids[12:]) for row in rows()]):
        policy.model.net.zero_grad()
        LocalLearner({"p": policy}, PolicyGradient(), 1).accumulate("p", some)
        gradient = torch.cat([p.grad.flatten() for p in policy.model.net.parameters() if p.grad is not None])
        expected = plain_gradient(policy.model, some)
        assert float((gradient - expected).norm() / expected.norm()) < 5e-5


def test_masks_that_forget_the_window_are_found_out_and_the_family_is_trained_row_by_row(monkeypatch):
    monkeypatch.setattr(masks, "_reach", lambda kind, config: lambda query, key: torch.ones_like(query == key))
    policy = Policy("p", family("mistral"))
    check_family(policy)
    assert not policy.model.packs
    trainer = LocalLearner({"p": policy}, PolicyGradient(), 1)
    trainer.accumulate("p", rows())
    gradient = torch.cat([p.grad.flatten() for p in policy.model.net.parameters()])
    expected = plain_gradient(policy.model, rows())
    assert float((gradient - expected).norm() / expected.norm()) < 5e-5


def test_positions_that_are_wrong_side_by_side_are_decoded_apart(monkeypatch):
    for kind in (Lean, Modules):
        start = kind.start

        def unmasked(self, ids, mask, *others, start=start):
            logits = start(self, ids, mask, *others)
            return logits + (0 if mask is None else 1) * torch.arange(logits.shape[-1])

        monkeypatch.setattr(kind, "start", unmasked)
    policy = Policy("p", copy.copy(tiny()))
    check_family(policy)
    assert not policy.model.pads
    assert not policy.model.lean
    made = families._sample(policy)
    assert all(
        {len(row.request.prompt_ids) for row in batch} in ({11}, {14})
        for batch in Decoder(policy).batches(made, len(made))
    )


def test_an_engine_that_samples_from_another_distribution_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(decoding, "log_distribution", lambda logits, *_: torch.log_softmax(1.5 * logits, dim=-1))
    with pytest.raises(
        ConfigError, match=r"^policies\.p\.model: models of the family 'qwen3' cannot be used here: the e"
    ):
        check_family(Policy("p", tiny(scale=3.0)))


@pytest.mark.parametrize("broken", ["log-probabilities", "gradients"])
def test_a_learner_that_is_wrong_in_both_ways_is_refused(broken, monkeypatch):
    score = forward.score

    def wrong(*args):
        scores = score(*args)
        moved = scores.logprobs + 0.1 if broken == "log-probabilities" else scores.logprobs * 1.0
        if broken == "gradients":
            moved.register_hook(lambda gradient: gradient * torch.linspace(0, 1, len(gradient)))
        return forward.Scores(moved, scores.entropy, scores.steepness)

    monkeypatch.setattr(families, "score", wrong)
    with pytest.raises(ConfigError, match="log-probabilities or gradients are not those of a plain forward"):
        check_family(Policy("p", tiny()))
    check_family(Policy("p", tiny()), trained=False)


def test_a_network_that_cannot_compute_again_what_it_computed_is_refused_with_checkpointing_alone(monkeypatch):
    def refuse(net):
        raise ValueError("it does not support that.\nmore")

    monkeypatch.setattr(families, "checkpoint_activations", refuse)
    check_family(Policy("p", tiny()))
    with pytest.raises(ConfigError, match=r"it does not support that\.; set optimizer\.checkpointing=false$"):
        check_family(Policy("p", tiny(), optimizer=OptimizerConfig(checkpointing=True)))


def test_a_large_network_is_tested_by_a_layer_of_each_kind_and_is_whole_afterwards(monkeypatch):
    monkeypatch.setattr(families, "LARGE", 0)
    model = family("gemma3_text")
    model.config.layer_types = ["sliding_attention"] * 2 + ["full_attention"] * 2
    model.config.sliding_window = 100
    before, config = copy.deepcopy(model.net.state_dict()), model.net.config.to_dict()
    seen = []

    def shape():
        return len(model.net.model.layers), model.config.layer_types, model.config.sliding_window

    monkeypatch.setattr(families, "_sample", lambda policy: seen.append(shape()) or [])
    with pytest.raises(ValueError, match="max"):  # nothing was sampled to compare
        check_family(Policy("p", model))
    assert seen[0] == (3, ["sliding_attention", "sliding_attention", "full_attention"], 8)
    assert model.net.config.to_dict() == config
    assert all(torch.equal(weight, before[name]) for name, weight in model.net.state_dict().items())
    assert len(model.net.state_dict()) == len(before)
    monkeypatch.undo()
    check_family(Policy("p", model))
    monkeypatch.setattr(families, "LARGE", 0)
    check_family(Policy("p", model))
    assert model.packs


def test_a_self_test_leaves_no_trace():
    model = tiny()
    before, chance = copy.deepcopy(model.net.state_dict()), torch.get_rng_state()
    check_family(Policy("p", model))
    assert all(torch.equal(weight, before[name]) for name, weight in model.net.state_dict().items())
    assert all(weight.grad is None for weight in model.net.parameters())
    assert not model.net.training
    assert torch.equal(torch.get_rng_state(), chance)


def test_float_buffers_stay_float32_in_a_bfloat16_copy():
    policy = Policy("p", tiny(), dtype=torch.bfloat16)
    policy.model.lean = False
    decoder = Decoder(policy)
    buffers = dict(decoder.net.named_buffers())
    assert {weight.dtype for weight in decoder.net.parameters()} == {torch.bfloat16}
    assert buffers
    for name, buffer in policy.model.net.named_buffers():
        assert torch.equal(buffers[name], buffer)
        assert buffers[name].dtype == buffer.dtype
        assert buffers[name].data_ptr() != buffer.data_ptr()


def test_what_is_left_to_chance_in_training_is_left_out():
    for name in ("opt", "phimoe", "seed_oss"):
        for module in family(name).net.modules():
            noise = {key: value for key, value in vars(module).items() if "drop" in key or "jitter" in key}
            assert not any(value for value in noise.values() if isinstance(value, float)), (name, noise)


def test_engine_and_learner_that_differ_stop_an_update_before_any_weight_has_moved(monkeypatch):
    from tests.learning.test_learner import experience

    made = policies({"p": tiny(scale=3.0)})
    trainer = LocalLearner(made, PolicyGradient(), 1, max_mismatch=0.3)
    graded = experience()
    before = copy.deepcopy(made["p"].model.net.state_dict())
    with pytest.raises(
        learner.UpdateError, match=r"policy 'p' from another distribution .* differ by \d.*0\.3"
    ) as told:
        trainer.update({"p": graded}, 0)
    assert told.value.untouched
    assert all(torch.equal(weight, before[name]) for name, weight in made["p"].model.net.state_dict().items())
    assert all(weight.grad is None for weight in made["p"].model.net.parameters())
    LocalLearner(made, PolicyGradient(), 1, max_mismatch=100.0).update({"p": graded}, 0)


@pytest.mark.parametrize("wrong", [True, False])
def test_a_graph_that_says_something_else_is_not_decoded_by(wrong, monkeypatch):
    """As on CUDA, where networks can be recorded."""
    for module in (families, decoding):
        monkeypatch.setattr(module, "recordable", lambda net: True)
    step = Graphs.step
    monkeypatch.setattr(Graphs, "step", lambda self, ids: step(self, ids) * (1.5 if wrong else 1.0))
    policy = Policy("p", replace(tiny(scale=3.0)))
    check_family(policy)
    assert policy.model.graphs != wrong
    assert policy.model.pads
    assert policy.model.lean
    policy.model.lean = False
    assert isinstance(Decoder(policy).steps(), Modules if wrong else Graphs)


UNSTEADY = (
    "cumsum_cuda_kernel does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'."
)
"""As PyTorch says it."""


@pytest.mark.parametrize("where", ["in the engine", "in the learner"])
def test_a_family_without_steady_kernels_is_refused_with_the_setting_that_admits_it(where, monkeypatch):
    def unsteady(*_args, **_settings):
        raise RuntimeError(UNSTEADY)

    monkeypatch.setattr(families, "_sample" if where == "in the engine" else "_gradients", unsteady)
    with pytest.raises(ConfigError) as refused:
        check_family(Policy("p", copy.copy(tiny())))
    assert str(refused.value) == (
        "policies.p.model: models of the family 'qwen3' cannot be used here: cumsum_cuda_kernel does not have a "
        "deterministic implementation; with train.deterministic=false they can, and a resume is not exact"
    )


def test_another_failure_of_the_learner_is_shown_as_it_is(monkeypatch):
    def broken(*_args, **_settings):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(families, "_gradients", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        check_family(Policy("p", copy.copy(tiny())))
