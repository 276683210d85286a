"""What a comparison with peers rests on: prompts of as many tokens, ends of one chance, a page of medians."""

from __future__ import annotations

import torch

from benchmarks.peers import SHAPES, OneSpeaker, TwoSpeakers, page, ratio_of, save_network, words, worth
from benchmarks.update import SIZES
from coterie.models.load import load_model


def test_a_network_ends_its_replies_with_the_chance_that_was_asked_for(tmp_path):
    for name, mean, chance in (("early", 16, 1 / 16), ("never", 0, 0)):
        save_network(tmp_path / name, SIZES["0.85M"], mean)
        model = load_model(str(tmp_path / name))
        prompt = words(0, 7, 200)
        ids = model.tokenizer(prompt).input_ids
        assert len(ids) == 200
        assert model.tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False) == prompt
        with torch.no_grad():
            shares = model.net(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
        assert abs(float(shares[:, model.tokenizer.eos_token_id].mean()) - chance) < 0.02


def test_prompts_differ_by_role_and_task():
    assert len({words(role, index, 16) for role in (0, 1) for index in range(50)}) == 100
    assert (TwoSpeakers.roles, OneSpeaker.roles) == (("left", "right"), ("left",))


def test_the_page_has_the_median_of_ratios_pair_by_pair():
    def told(*rates: float) -> list[dict[str, float]]:
        return [{"replies": rate, "tokens": 10 * rate, "gigabytes": rate / 100} for rate in rates]

    pairs = list(zip(told(60, 50, 40), told(10, 20, 10), strict=True))
    assert ratio_of(pairs, "replies") == (2.5, 4.0, 6.0)
    row = page({SHAPES[2]: pairs})[-2]
    assert row == (
        "| CoMLRL: 2 roles, 256 + 64, ending early (mean 16) | 10, 50 | 4.0 (2.5 to 6.0) | 100, 500 | 0.10, 0.50 |"
    )


def test_every_reply_has_an_advantage():
    assert len({worth(left, right) for left in ("", "a", "b") for right in ("", "a", "b")}) == 9
