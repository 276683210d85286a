"""In bfloat16, sums stay exact enough for an adapter; linear layers read one matrix; what decoding takes is counted."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

from coterie.learning.batch import Pack, Row
from coterie.learning.forward import lay_out, score, way_of
from coterie.models.adapters import adapted
from coterie.models.halves import HalfLinear, keep_sums
from coterie.models.load import prepare
from coterie.run.plan import KERNELS
from coterie.run.policies import KERNEL_CACHES
from tests.families import family
from tests.toys import tiny

RESIDENT = """
import json, sys, torch
from random import Random
from transformers import LlamaConfig, LlamaForCausalLM
from coterie.engines.decoding import Decoder, DecodingRow
from coterie.kernel.engine import Request
from coterie.learning.policy import Policy
from coterie.models.adapters import adapted
from coterie.models.load import prepare
from tests.toys import tiny

kind, dtype, lean = sys.argv[1], getattr(torch, sys.argv[2]), sys.argv[3] == "lean"
torch.set_num_threads(1)
config = LlamaConfig(vocab_size=32_000, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                     num_attention_heads=4, num_key_value_heads=2)
net = LlamaForCausalLM(config).to(dtype if kind == "lora" else torch.float32)
model = prepare(net, tiny().tokenizer)
model.vocabulary, model.lean, model.stop_ids = 32_000, lean, frozenset()
if kind == "lora":
    model.net.requires_grad_(False)
    model = adapted(model, rank=8, alpha=8.0, seed=0, where="p")
decoder = Decoder(Policy("p", model, kind, dtype=dtype))
decoder.refresh()

def wave(count, length):
    chance = Random(0)
    prompts = [tuple(chance.choices(range(3, 30_000), k=length)) for _ in range(count)]
    return [DecodingRow(Request((f"{at:03}", 0, "", ""), "p", "", "", prompt, (at,), 1.0, 1.0, 4, ()), at, Random(at))
            for at, prompt in enumerate(prompts)]

def resident(field):
    return int(open("/proc/self/status").read().split(field + ":")[1].split()[0]) * 1024

def play(rows):
    decoder.fill(rows)

play(wave(2, 8))  # what libraries set up once
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
play(wave(96, 48))
print(json.dumps([resident("VmHWM") - before, decoder.costs.of(96, 96, 48, 4)]))
"""


def test_an_input_that_is_not_contiguous_gives_the_numbers_of_one_that_is():
    layer = torch.nn.Linear(6, 5).to(torch.bfloat16)
    states = torch.randn(3, 4, 6, dtype=torch.bfloat16)[:, -1:]
    expected = layer(states.contiguous())
    keep_sums(layer)
    assert type(layer) is HalfLinear
    assert torch.equal(layer(states), expected)


def test_layers_in_float32_stay_as_they_are():
    layer = torch.nn.Linear(6, 5)
    keep_sums(layer)
    assert type(layer) is torch.nn.Linear


@torch.no_grad()
def test_where_the_learner_scores_what_an_adapter_adds_is_not_lost_in_rounding():
    base = tiny(scale=2.0)
    model = adapted(prepare(base.net.to(torch.bfloat16), base.tokenizer), rank=4, alpha=8.0, seed=1, where="p")
    chance = torch.Generator().manual_seed(0)
    part = model.net.model.layers[0].self_attn.o_proj
    small = part.lora_B["default"].weight
    small.copy_(1e-4 * torch.randn(small.shape, generator=chance))  # far below half a step of an output in bfloat16
    states = torch.randn(1, 4096, part.in_features, generator=chance)
    expected = torch.nn.functional.linear(states, part.get_delta_weight("default").float())
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            read = states if enabled else states.bfloat16()
            moved = (part(read) - part.base_layer(read)).float()
        gain = float((moved * expected).sum() / (expected * expected).sum())
        assert gain == pytest.approx(1.0, abs=0.02) if enabled else gain < 0.8, "in the mean over inputs"
    assert model.net.model.embed_tokens(torch.tensor([[3]])).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert model.net.model.embed_tokens(torch.tensor([[3]])).dtype == torch.float32


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "nemotron", "gemma3_text"])
def test_adapters_beside_a_base_in_bfloat16_have_a_gradient_in_each_kind_of_network(name):
    """Layer norms of PyTorch's, of a network's own, and none."""
    base = family(name)
    model = prepare(base.net.to(torch.bfloat16), base.tokenizer)
    model.net.requires_grad_(False)
    model = adapted(model, rank=4, alpha=8.0, seed=1, where="p")
    packs = [Pack(0, (Row((5, 6, 7), (8, 9, 2), (0.0,) * 3, 0.0, 0.0, 1.0, ""),))]
    score(model, lay_out(packs, way_of(model, packs)), torch.bfloat16).logprobs.sum().backward()
    grads = [float(weight.grad.norm()) for weight in model.trained if weight.grad is not None]
    assert any(grads)
    assert all(map(math.isfinite, grads))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("kind", "dtype", "way"),
    [
        ("lora", "bfloat16", "lean"),
        ("full", "float32", "modules"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                ("lora", "bfloat16", "modules"),
                ("full", "bfloat16", "lean"),
                ("full", "bfloat16", "modules"),
                ("full", "float32", "lean"),
            )
        ),
    ],
)
def test_decoding_takes_the_memory_that_is_counted(kind, dtype, way):
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, kind, dtype, way], capture_output=True, text=True, check=True,
        env=os.environ | dict.fromkeys(KERNEL_CACHES, "64"),  # as in a run
    )  # fmt: skip
    taken, counted = json.loads(done.stdout.splitlines()[-1])
    kernels = KERNELS if dtype == "bfloat16" else 0  # which a plan counts for the process
    assert taken <= 1.25 * counted + kernels + (48 << 20), f"{taken >> 20} MiB taken, {counted >> 20} counted"
