"""Decoding without modules: the numbers of a plain forward, whoever ends when, and of the weights as they are."""

import copy

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from coterie.engines import lean
from coterie.engines.decoding import Decoder, costs_of
from coterie.engines.lean import Lean
from coterie.learning.policy import Policy
from coterie.models.adapters import adapted
from coterie.models.lean import Network, merged, usual
from coterie.models.load import Model
from coterie.models.meter import Meter
from tests.families import family
from tests.toys import tiny

PROMPTS = {"even": [(5, 6, 7, 8, 9), (9, 8, 7, 6, 5)], "padded": [(5, 6, 7), (9, 8, 7, 6, 5)]}


def small(name: str, **settings) -> Model:
    """A random network of a family, mild enough that its logits are no hundreds."""
    if name == "qwen3":
        return tiny(scale=2.0)
    model = copy.copy(family(name))
    config = CONFIG_MAPPING[name](**{**model.net.config.to_dict(), "sliding_window": 256, **settings})
    torch.manual_seed(1)
    model.net = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.net.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    return model


def padded(prompts) -> tuple[torch.Tensor, torch.Tensor | None]:
    longest = max(map(len, prompts))
    ids = torch.tensor([(0,) * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([(0,) * (longest - len(prompt)) + (1,) * len(prompt) for prompt in prompts])
    return ids, None if mask.all() else mask


@torch.no_grad()
def furthest(
    model: Model,
    prompts,
    repeat: list[int],
    leave: dict[int, list[int]],
    network: Lean | None = None,
    *,
    steps: int = 7,
    head: int = 0,
) -> float:
    """The largest difference of a log-probability from that of a plain forward.

    Args:
        leave: by step, the rows that go on.
        network: made before; None: a new one.
        head: tokens that all prompts begin with.
    """
    network, worst, chance = network or Lean(model.net, model.finish), 0.0, torch.Generator().manual_seed(0)
    network.refresh()
    rows = [list(prompts[at]) for at in repeat]
    logits = network.start(*padded(prompts), torch.tensor(repeat), steps, head)
    for step in range(steps):
        for row, mine in zip(rows, logits, strict=True):
            plain = model.net(input_ids=torch.tensor([row]), use_cache=False).logits[0, -1]
            worst = max(worst, float((plain.log_softmax(-1) - mine.log_softmax(-1)).abs().max()))
        if kept := leave.get(step):
            network.keep(torch.tensor(kept))
            rows = [rows[at] for at in kept]
        ids = torch.randint(3, 300, (len(rows),), generator=chance)
        for row, token in zip(rows, ids.tolist(), strict=True):
            row.append(token)
        logits = network.step(ids)
    network.clear()
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("lengths", PROMPTS)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("qwen3", {}),
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
        ("mistral", {}),
        ("qwen2", {"use_sliding_window": False, "layer_types": ["full_attention"] * 4}),
    ],
)  # fmt: skip
def test_its_log_probabilities_are_those_of_a_plain_forward(name, settings, lengths, shared, monkeypatch):
    monkeypatch.setattr(lean, "LONG", 0)
    monkeypatch.setattr(Lean, "reads", 1 if shared else 2048)  # a prompt after the other
    model = small(name, **settings)
    assert usual(model.net)
    repeat = [0, 1, 0, 1, 0, 1, 1] if shared else [1, 0]
    leave = {1: [0, 6, 2, 3], 3: [3, 2], 5: [1]} if shared else {3: [1]}
    assert furthest(model, PROMPTS[lengths], repeat, leave) < 1e-5


def test_prompts_whose_rows_have_ended_leave_one_after_the_other(monkeypatch):
    monkeypatch.setattr(lean, "LONG", 0)
    three = [(5, 6, 7), (9, 8, 7, 6, 5), (4, 9, 4, 9)]
    assert furthest(tiny(scale=2.0), three, [0, 1, 2, 0, 1, 2], {1: [1, 2, 4, 5], 3: [1, 3]}) < 1e-5


@pytest.mark.parametrize("lengths", PROMPTS)
def test_prompts_that_are_read_one_after_the_other_go_to_their_own_rows(lengths, monkeypatch):
    monkeypatch.setattr(Lean, "reads", 1)
    assert furthest(tiny(scale=2.0), PROMPTS[lengths], [1, 0, 1], {2: [0, 2]}) < 1e-5


@pytest.fixture
def tokens_read(monkeypatch) -> list[int]:
    """How many each reading of the network was given."""
    counts, through = list[int](), Network.through

    def counted(self, weights, ids, *more):
        counts.append(ids.numel())
        return through(self, weights, ids, *more)

    monkeypatch.setattr(Network, "through", counted)
    return counts


HEADED = {
    "even": [(5, 6, 7, 8, 9), (5, 6, 7, 4, 3), (5, 6, 7, 8, 4)],
    "padded": [(5, 6, 7, 4), (5, 6, 7, 9, 8, 6, 5), (5, 6, 7, 9, 8)],
}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("reads", [1, 4, 2048])
@pytest.mark.parametrize("lengths", HEADED)
def test_what_all_prompts_begin_with_is_read_once(lengths, reads, apart, monkeypatch, tokens_read):
    monkeypatch.setattr(Lean, "reads", reads)
    monkeypatch.setattr(lean, "LONG", 0 if apart else 8192)  # prompts' keys beside those of rows, or before them
    model, longest = tiny(scale=2.0), max(map(len, HEADED[lengths]))
    network = Lean(model.net, model.finish)
    network.refresh()
    network.start(*padded(HEADED[lengths]), torch.arange(3), 1, 3)
    assert tokens_read[0] == 3
    assert sum(tokens_read) == 3 + 3 * (longest - 3)
    assert (
        furthest(model, HEADED[lengths], [0, 1, 2, 0, 1, 2, 2], {1: [0, 6, 2, 3, 1], 3: [3, 2], 5: [1]}, head=3) < 1e-5
    )


# one of 2 tokens spares 2 of 10, less than a quarter; one of 3 spares 3 of 8
def test_a_head_that_spares_little_is_read_with_each_prompt(tokens_read):
    model = tiny(scale=2.0)
    network = Lean(model.net, model.finish)
    network.refresh()
    network.start(*padded(PROMPTS["even"]), torch.arange(2), 1, 2)
    network.start(*padded([(5, 6, 7, 8), (5, 6, 7, 9)]), torch.arange(2), 1, 3)
    assert tokens_read == [10, 3, 2]


def test_of_many_prompts_only_those_that_are_read_at_once_are_kept_twice(monkeypatch):
    monkeypatch.setattr(Lean, "reads", 64)
    model = tiny(scale=2.0)
    network = Lean(model.net, model.finish)
    network.refresh()
    counted = costs_of(model.net, network, pads=False)
    ids, each = torch.full((40, 16), 7), torch.arange(40)
    known = [*model.net.state_dict().values(), *network.copies, ids, each]
    with torch.no_grad(), Meter(known) as taken:
        logits = network.start(ids, None, each, 4)
    assert logits.shape[0] == 40
    cache = 40 * (16 + 4) * counted.token
    assert cache <= taken.peak <= counted.of(rows=40, prompts=40, longest=16, max_tokens=4)
    assert taken.peak - taken.live < cache / 2


def test_it_follows_the_networks_weights_and_looks_at_them_again_only_where_they_moved():
    model = tiny(scale=2.0)
    network = Lean(model.net, model.finish)
    network.refresh()
    before = network.copies
    network.refresh()
    assert all(one is other for one, other in zip(before, network.copies, strict=True))
    with torch.no_grad():
        for weight in model.net.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    assert furthest(model, PROMPTS["even"], [0, 1], {}, network) < 1e-5
    layer = model.net.model.layers[0].mlp.up_proj  # another tensor, as often changed
    other = torch.nn.Parameter(torch.zeros_like(layer.weight))
    while other._version < layer.weight._version:
        with torch.no_grad():
            other.copy_(2 * layer.weight)
    layer.weight = other
    assert furthest(model, PROMPTS["even"], [0, 1], {}, network) < 1e-5
    decoder = Decoder(Policy("p", model))
    mine = decoder.steps()
    with torch.no_grad():
        next(model.net.parameters()).mul_(1.1)
    ids, repeat = torch.tensor([[5, 6, 7]]), torch.tensor([0])
    with torch.no_grad():
        stale = mine.start(ids, None, repeat, 1)
        fresh, plain = decoder.steps().start(ids, None, repeat, 1), model.net(input_ids=ids).logits[:, -1]
    assert torch.allclose(fresh, plain, atol=1e-5)
    assert not torch.allclose(stale, plain, atol=1e-3)
    unseen = decoder.steps()
    next(model.net.parameters()).data.mul_(1.1)  # which no counter notices
    decoder.refresh()
    assert decoder.steps() is not unseen
    with torch.no_grad():
        fresh, plain = decoder.steps().start(ids, None, repeat, 1), model.net(input_ids=ids).logits[:, -1]
    assert torch.allclose(fresh, plain, atol=1e-5)


def test_an_adapter_is_in_its_copy():
    model = adapted(tiny(scale=2.0), rank=4, alpha=8.0, seed=1, where="p")
    with torch.no_grad():
        for weight in model.trained:
            weight.add_(0.1 * torch.randn_like(weight))
    assert usual(model.net)
    assert furthest(model, PROMPTS["padded"], [0, 1, 1], {2: [0, 2]}) < 1e-5


def test_what_is_not_of_the_usual_shape_keeps_its_modules():
    assert not usual(family("gemma").net)
    assert not usual(family("granite").net)
    assert not usual(tiny().net.to("meta"))
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert not usual(small("llama", rope_parameters=dynamic).net)
    assert not usual(small("llama", hidden_act="gelu").net)
    model = small("mistral", sliding_window=64)
    assert usual(model.net)
    assert not Decoder(Policy("p", model)).lean, "tokens beyond the window are not seen"


def with_adapter(size: float, dtype: torch.dtype) -> Model:
    """A model whose adapter's second matrices have numbers of about a size; scale 2."""
    base = tiny(scale=2.0)
    base.net.to(dtype)
    model = adapted(base, rank=4, alpha=8.0, seed=1, where="p")
    with torch.no_grad():
        for name, weight in model.net.named_parameters():
            if "lora_B" in name:
                weight.copy_(size * torch.randn_like(weight))
            if name.endswith("norm.weight"):  # which is 1 in a new network
                weight.mul_(1 + 0.5 * torch.rand_like(weight))
    return model


@torch.no_grad()
def test_an_adapter_beside_its_base_gives_the_numbers_of_a_plain_forward():
    model = with_adapter(0.3, torch.float32)
    model.net.requires_grad_(False)
    network = Lean(model.net, model.finish)
    network._weights = merged(model.net, bases={})
    network._seen = [(id(weight), weight._version) for weight in model.net.parameters()]
    assert all(layer.qkv.first is not None for layer in network._weights.layers)
    assert furthest(model, PROMPTS["even"], [0, 1], {}, network) < 1e-5


@torch.no_grad()
def test_in_bfloat16_what_an_adapter_adds_is_not_lost_in_rounding():
    model = with_adapter(1e-4, torch.bfloat16)  # far below half a step of a weight in bfloat16
    network = Lean(model.net, model.finish, torch.bfloat16)
    network.refresh()
    part = model.net.model.layers[0].self_attn.o_proj
    states = torch.randn(4096, part.in_features, generator=torch.Generator().manual_seed(0))
    plain = torch.nn.functional.linear(states.bfloat16(), part.base_layer.weight).float()
    moved = network._weights.layers[0].out(states) - plain
    expected = torch.nn.functional.linear(states, part.get_delta_weight("default").float())
    gain = float((moved * expected).sum() / (expected * expected).sum())
    assert gain == pytest.approx(1.0, abs=0.2), "what rounding leaves of it, in the mean over inputs"
