"""Linear layers in bfloat16 read their input as one matrix; what decoding takes is what is counted of it."""

import json
import os
import subprocess
import sys

import pytest
import torch

from coterie.models.flat import FlatLinear, flatten
from coterie.run.plan import KERNELS
from coterie.run.policies import KERNEL_CACHES

RESIDENT = """
import json, sys, torch
from random import Random
from transformers import LlamaConfig, LlamaForCausalLM
from coterie.engines.decoding import Decoder, Row
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
    return [Row(Request((f"{at:03}", 0, "", ""), "p", "", "", prompt, (at,), 1.0, 1.0, 4, ()), at, Random(at))
            for at, prompt in enumerate(prompts)]

def resident(field):
    return int(open("/proc/self/status").read().split(field + ":")[1].split()[0]) * 1024

def play(rows):
    for _ in decoder.fill(rows):
        pass

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
    flatten(layer)
    assert type(layer) is FlatLinear
    assert torch.equal(layer(states), expected)


def test_layers_in_float32_stay_as_they_are():
    layer = torch.nn.Linear(6, 5)
    flatten(layer)
    assert type(layer) is torch.nn.Linear


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", ["lean", "modules"])
@pytest.mark.parametrize(("kind", "dtype"), [("lora", "bfloat16"), ("full", "bfloat16"), ("full", "float32")])
def test_decoding_takes_the_memory_that_is_counted(kind, dtype, way):
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, kind, dtype, way], capture_output=True, text=True, check=True,
        env=os.environ | dict.fromkeys(KERNEL_CACHES, "64"),  # as in a run
    )  # fmt: skip
    taken, counted = json.loads(done.stdout.splitlines()[-1])
    kernels = KERNELS if dtype == "bfloat16" else 0  # which a plan counts for the process
    assert taken <= 1.25 * counted + kernels + (48 << 20), f"{taken >> 20} MiB taken, {counted >> 20} counted"
