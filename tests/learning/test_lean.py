"""Training without modules: the gradient of a plain forward, whatever a token sees and whoever else shares the weights.

That it is so for masks, parts and rows alone is in `test_learner.py`, past windows in `checks/test_families.py`.
"""

import contextlib
from dataclasses import replace

import pytest
import torch

from coterie.checks import families as checks
from coterie.learning import lean as module
from coterie.learning.batch import pack, rows_of
from coterie.learning.forward import lay_out, score, way_of
from coterie.learning.lean import LeanForward, can_lean
from coterie.learning.loss import Clip
from coterie.learning.policy import Policy
from coterie.models import attention
from coterie.models.adapters import adapted
from coterie.models.load import layers_of
from tests.engines.test_lean import small
from tests.families import family
from tests.learning.test_learner import experience, gradient, learner, reference_gradient, relative
from tests.toys import tiny


@pytest.mark.slow
@pytest.mark.parametrize("row", [-(1 << 40), 1 << 40])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
        ("mistral", {}),
        ("qwen2", {"use_sliding_window": False, "layer_types": ["full_attention"] * 4}),
    ],
)  # fmt: skip
def test_its_gradient_is_that_of_plain_forwards(name, settings, row, monkeypatch):
    monkeypatch.setattr(attention, "ROW", row)
    monkeypatch.setattr(attention, "TOKEN", 0)
    model = small(name, **settings)
    model.splits = attention.install(model.net)
    rows = rows_of(experience(groups=2, size=5, prompt=20), Clip())
    trainer = learner(model)
    assert trainer.trainees["p"].lean is not None
    ways = {way_of(model, batch) for batch in trainer.microbatches("p", rows)}
    assert ways == {"masks" if row > 0 else "parts"}
    assert relative(gradient(trainer, rows), reference_gradient(model, rows, trainer.loss)) < 1e-5


def test_the_word_of_padding_is_not_trained_as_an_input_which_the_librarys_embedding_does_not_either():
    model = tiny(scale=3.0)
    padding = model.config.pad_token_id
    assert padding is not None
    rows = [replace(row, prompt_ids=(5, padding, *row.prompt_ids)) for row in rows_of(experience(), Clip())]
    trainer = learner(model)
    assert trainer.trainees["p"].lean is not None
    assert relative(gradient(trainer, rows), reference_gradient(model, rows, trainer.loss)) < 1e-5


def test_modules_compute_nothing_of_it():
    trainer = learner(tiny(), Clip(kl=0.5))
    trainee = trainer.trainees["p"]
    assert trainee.reference is not None
    for net in (trainee.model.net, trainee.reference.net):
        for layer in layers_of(net):
            layer.register_forward_hook(lambda *_: pytest.fail("a module was called"))
    trainer.accumulate("p", rows_of(experience(), Clip()))


def test_weights_that_are_lent_get_their_gradient_at_the_end_as_those_that_are_not():
    model, rows = tiny(scale=3.0), rows_of(experience(), Clip())
    lean, batches = LeanForward(model), [lay_out([one]) for one in pack(rows, 200)]
    assert len(batches) > 1
    found: list[list[torch.Tensor | None]] = []

    def backward() -> None:
        for layout in batches:
            score(model, layout, torch.float32, lean).logprobs.sum().backward()

    backward()
    found.append([weight.grad for weight in model.trained])
    model.net.zero_grad(set_to_none=True)
    with lean.lent():
        backward()
        merged = layers_of(model.net)[0].get_submodule("self_attn.q_proj").parameters()
        assert all(weight.grad is None for weight in merged)
    found.append([weight.grad for weight in model.trained])
    for mine, theirs in zip(*found, strict=True):
        assert mine is not None
        assert theirs is not None
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_what_is_lent_is_as_the_weights_are_when_it_is_lent():
    model = tiny(scale=3.0)
    lean, layout = LeanForward(model), lay_out(pack(rows_of(experience(), Clip()), 400))

    def found() -> list[torch.Tensor]:
        with torch.no_grad():
            mine = score(model, layout, torch.float32, lean).logprobs
            return [mine, score(model, layout, torch.float32).logprobs]

    for _ in range(2):
        with lean.lent():
            assert torch.allclose(*found(), atol=1e-5)
        with torch.no_grad():
            for weight in model.net.parameters():
                weight.mul_(1.1)


def test_a_failure_in_between_gives_nothing_back_and_keeps_no_weights():
    model = tiny()
    lean, layout = LeanForward(model), lay_out(pack(rows_of(experience(), Clip()), 400))

    with contextlib.suppress(RuntimeError), lean.lent():
        score(model, layout, torch.float32, lean).logprobs.sum().backward()
        raise RuntimeError
    assert model.net.get_parameter("model.layers.0.self_attn.q_proj.weight").grad is None
    assert lean._lent is None


def test_what_the_last_layer_makes_of_a_prompt_is_not_computed(monkeypatch):
    """Of rows of 20 and 6 tokens, the states of 7: one that predicts the first, and five more."""
    asked: list[int] = []
    through = LeanForward.states

    def counted(*args):
        states = through(*args)
        asked.append(len(states))
        return states

    monkeypatch.setattr(LeanForward, "states", counted)
    rows = rows_of(experience(groups=1, size=1, prompt=20, longest=7), Clip())
    (row,) = rows
    learner(tiny()).accumulate("p", rows)
    assert asked == [len(row.completion_ids)]


def test_what_it_is_not_made_for_keeps_its_modules(monkeypatch):
    assert can_lean(tiny())
    assert not can_lean(replace(tiny(), lean=False))
    assert not can_lean(replace(tiny(), packs=False))
    assert not can_lean(adapted(tiny(), rank=2, alpha=4.0, seed=1, where="p"))
    assert not can_lean(family("gemma"))
    mixed = small("qwen2", layer_types=["full_attention", "sliding_attention"] * 2, use_sliding_window=True)
    assert not can_lean(mixed), "layers that look back differently need a mask each"
    for settings in ({"checkpointing": True}, {}):
        policy = Policy("p", tiny(), dtype=torch.float32 if settings else torch.bfloat16)
        policy.optimizer = policy.optimizer.model_copy(update=settings)
        assert type(learner())({"p": policy}, Clip(), 1).trainees["p"].lean is None
    monkeypatch.setattr(module, "LARGE", tiny().size - 1)
    assert not can_lean(tiny())


@pytest.mark.parametrize("wrong", ["_Normed", "_Turned", "_Gated"])
def test_a_backward_that_is_wrong_is_found_out_at_load(wrong, monkeypatch):
    kind = getattr(module, wrong)
    backward = kind.backward
    monkeypatch.setattr(kind, "backward", lambda *args: tuple(
        None if one is None else 1.1 * one for one in each
    ) if isinstance(each := backward(*args), tuple) else 1.1 * each)  # fmt: skip
    policy = Policy("p", tiny(scale=3.0))
    checks.check_family(policy)
    assert not policy.model.lean
    assert policy.model.packs
