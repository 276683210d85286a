"""The golden numbers: formulas against arithmetic done by hand, a table each."""

import tomllib
from pathlib import Path

import pytest
import torch

from coterie.algorithms.credit import CREDIT
from coterie.learning.loss import Loss, Tokens
from coterie.registry import find

HERE = Path(__file__).parent
CREDITS = tomllib.loads((HERE / "credit.toml").read_text())["credit"]
LOSSES = tomllib.loads((HERE / "losses.toml").read_text())["loss"]


@pytest.mark.parametrize("case", CREDITS, ids=lambda case: f"{case['method']} of {case['returns']}")
def test_credit(case):
    assert CREDIT[case["method"]](case["returns"]) == pytest.approx(case["expected"], rel=0, abs=1e-5)


def test_every_way_of_credit_has_a_golden_number():
    assert {case["method"] for case in CREDITS} == set(CREDIT)


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case["how"])
def test_losses(case):
    settings = dict(case["loss"])
    loss = find("loss", settings.pop("name"), Loss)(**settings)
    logprobs = torch.tensor(case["ratios"], dtype=torch.float64).log().requires_grad_()
    lengths = torch.tensor(case["lengths"])
    rows = torch.arange(len(lengths)).repeat_interleave(lengths)
    advantages = torch.tensor(case["advantages"], dtype=torch.float64)
    reference = torch.tensor(case["reference"], dtype=torch.float64).log() if "reference" in case else None
    rollout = -torch.tensor(case.get("importance", [1.0] * len(advantages)), dtype=torch.float64).log()
    losses = loss(Tokens(logprobs, torch.zeros_like(advantages), rollout, advantages, rows, lengths), reference)
    assert losses.tolist() == pytest.approx(case["expected"], rel=0, abs=1e-6)
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    assert gradient.tolist() == pytest.approx(case["gradient"], rel=0, abs=1e-6)
