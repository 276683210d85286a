"""Losses, a number a token; the numbers worked out by hand are in tests/golden."""

import math

import pytest
import torch

from coterie.errors import ConfigError
from coterie.learning.loss import GSPO, Clip, Loss, PolicyGradient, Tokens, kl_k3


def logs(*ratios: float) -> torch.Tensor:
    return torch.tensor([math.log(ratio) for ratio in ratios], dtype=torch.float64, requires_grad=True)


def tokens(new: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, *lengths: int) -> Tokens:
    """Rows of these lengths; none: every token a row."""
    each = torch.tensor(lengths or [1] * len(new))
    return Tokens(new, old, old, advantages, torch.arange(len(each)).repeat_interleave(each), each)


def clip_share(new, old, advantages, loss: Loss) -> torch.Tensor:
    return loss.shares(tokens(new, old, advantages))["clip_share"]


def exact(values: list[float]):
    return pytest.approx(values, rel=0, abs=1e-6)


# d = log(0.5) - log(0.25) = log 2; exp(-d) - 1 + d = 0.5 - 1 + 0.693147 = 0.193147
def test_k3_by_hand():
    assert kl_k3(logs(0.5), logs(0.25)).tolist() == exact([0.1931472])
    assert kl_k3(logs(0.3), logs(0.3)).tolist() == [0.0]


def test_k3_is_unbiased_and_its_ratio_form_has_the_gradient_of_the_reverse_kl():
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.0, 0.5, -0.4], dtype=torch.float64), 0)
    policy = torch.log_softmax(logits, 0)
    kl = (policy.exp() * (policy - reference)).sum()
    (exact_gradient,) = torch.autograd.grad(kl, logits, retain_graph=True)
    old = policy.detach()
    expected = (old.exp() * kl_k3(policy, reference)).sum()
    assert expected.item() == pytest.approx(kl.item(), rel=0, abs=1e-12)
    loss = PolicyGradient(kl=1.0)
    zero = torch.zeros(3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((old.exp() * loss(tokens(policy, old, zero), reference)).sum(), logits)
    assert gradient.tolist() == pytest.approx(exact_gradient.tolist(), rel=0, abs=1e-12)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (lambda batch: -batch.advantages[:-1] * batch.logprobs[:-1], r"Mine.tokens gives \(2,\) numbers for 3 tokens"),
        (lambda batch: -(batch.advantages * batch.logprobs).mean(), r"gives \(\) numbers for 3 tokens; return one"),
        (lambda batch: -batch.advantages[:, None] * batch.logprobs, r"gives \(3, 3\) numbers"),
        (lambda batch: -batch.advantages, "does not depend on batch.logprobs"),
    ],
)
def test_what_is_no_number_a_token_is_one_line(shape, message):
    class Mine(Loss):
        def tokens(self, batch):
            return shape(batch)

    with pytest.raises(ConfigError, match=message):
        Mine()(tokens(logs(0.5, 0.25, 0.5), torch.zeros(3).double(), torch.ones(3).double()))


def test_clip_share_counts_tokens_whose_gradient_is_cut():
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0]).double()
    cut = clip_share(logs(1.5, 1.5, 0.5, 0.5), torch.zeros(4).double(), advantages, Clip())
    assert cut.tolist() == [True, False, False, True]


def test_the_clip_cuts_beyond_its_bounds_not_at_them_and_by_the_advantages_sign():
    """exp(log 2) is 2 and exp(log 1/2) is 1/2, exactly."""
    bounds = Clip(epsilon=0.5, epsilon_high=1.0)
    at = clip_share(logs(2.0, 0.5), torch.zeros(2).double(), torch.tensor([1.0, -1.0]).double(), bounds)
    assert at.tolist() == [False, False]
    signs = torch.tensor([0.0, 0.5, 0.0, -0.5]).double()
    assert clip_share(logs(0.2, 0.2, 3.0, 3.0), torch.zeros(4).double(), signs, bounds).tolist() == [False] * 4


def test_gspo_clips_a_reply_as_a_whole():
    batch = tokens(logs(2.0, 0.5, 1.5), torch.zeros(3).double(), torch.tensor([3.0, 3.0, 2.0]).double(), 2, 1)
    assert GSPO().shares(batch)["clip_share"].tolist() == [False, False, True]


def test_gspo_of_replies_of_one_token_is_the_clip():
    new, old, advantages = logs(1.5, 0.5, 0.9), torch.zeros(3).double(), torch.tensor([1.0, -1.0, 2.0]).double()
    bounds = {"epsilon": 0.2, "epsilon_high": 0.3}
    assert (
        GSPO(**bounds)(tokens(new, old, advantages)).tolist() == Clip(**bounds)(tokens(new, old, advantages)).tolist()
    )


# 100 tokens are free, 200 cost all of 0.5: 150 cost 0.25
def test_long_replies_are_charged_by_their_length():
    loss = Clip(overlong_from=100, overlong_buffer=100, overlong_penalty=0.5)
    lengths = (1, 100, 150, 200, 300)
    assert [loss.advantage(1.0, length) for length in lengths] == exact([1.0, 1.0, 0.75, 0.5, 0.5])
    assert [Clip().advantage(1.0, length) for length in lengths] == [1.0] * 5


@pytest.mark.parametrize("loss", [Clip(epsilon=0.1), GSPO(epsilon=0.5, epsilon_high=0.5), PolicyGradient()])
def test_every_loss_keeps_the_contract(loss: Loss):
    """A number a token, of which only the log-probabilities have a gradient, and which knows no order of rows."""
    new, old = logs(1.3, 0.8, 1.1, 0.7, 1.0), torch.zeros(5).double()
    advantages = torch.tensor([1.0, 1.0, -0.5, -0.5, -0.5]).double()
    whole = loss(tokens(new, old, advantages, 2, 3))
    assert whole.shape == (5,)
    apart = [loss(tokens(new[a:b], old[a:b], advantages[a:b], b - a)) for a, b in ((2, 5), (0, 2))]
    assert torch.cat([apart[1], apart[0]]).tolist() == exact(whole.tolist())
    (gradient,) = torch.autograd.grad(whole.sum(), new)
    assert gradient.isfinite().all()
    assert gradient.any()
    assert all(share.shape == (5,) for share in loss.shares(tokens(new, old, advantages, 2, 3)).values())
    still = loss.tokens(tokens(new, new.detach(), 0 * advantages, 2, 3))
    assert torch.autograd.grad(still.sum(), new)[0].tolist() == exact([0.0] * 5)  # no advantage, no pull


@pytest.mark.parametrize("correction", ["token_mask", "sequence_mask"])
def test_a_mask_leaves_out_what_is_beyond_all_numbers(correction):
    """exp(100) is infinite in float32, and infinity times 0 would be no number."""
    loss, apart = Clip(correction=correction), torch.tensor([100.0, 0.1])
    rollout = torch.full((2,), -3.0)
    batch = Tokens(
        logprobs=(rollout + apart).requires_grad_(), old=rollout + apart, rollout=rollout, advantages=torch.ones(2),
        rows=torch.tensor([0, 1]), lengths=torch.ones(2, dtype=torch.long),
    )  # fmt: skip
    assert loss(batch).tolist() == pytest.approx([0.0, -math.exp(0.1)], rel=1e-5)
