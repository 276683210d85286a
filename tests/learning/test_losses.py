"""Losses by hand, a number a token."""

import math

import pytest
import torch

from coterie.learning.loss import Loss
from coterie.learning.losses import clip_share, clipped_surrogate, kl_k3, policy_gradient, token_losses


def logs(*ratios: float) -> torch.Tensor:
    return torch.tensor([math.log(ratio) for ratio in ratios], dtype=torch.float64, requires_grad=True)


def exact(values: list[float]):
    return pytest.approx(values, rel=0, abs=1e-6)


# ratio 1.5, A = 1.2247: clip to 1.2, 1.2 x 1.2247 = 1.46964; A = -1.2247: min keeps 1.5 x -1.2247 = -1.83705
def test_the_clip_cuts_gain_but_not_loss():
    new, old = logs(1.5, 1.5), torch.zeros(2, dtype=torch.float64)
    advantages = torch.tensor([1.2247, -1.2247], dtype=torch.float64)
    losses = clipped_surrogate(new, old, advantages, 0.2, 0.2)
    assert losses.tolist() == exact([-1.46964, 1.83705])
    losses.sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == exact([0.0, 1.83705])  # d(1.5 x 1.2247)/dlog = 1.83705


# ratio 0.5: with A = 1 nothing is cut (0.5), with A = -1 the clip at 0.8 holds: min(-0.5, -0.8) = -0.8
def test_the_lower_clip_holds_where_the_advantage_is_negative():
    losses = clipped_surrogate(logs(0.5, 0.5), torch.zeros(2).double(), torch.tensor([1.0, -1.0]).double(), 0.2, 0.2)
    assert losses.tolist() == exact([-0.5, 0.8])


def test_epsilon_high_widens_the_upper_bound_alone():
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    assert clipped_surrogate(logs(1.5), zero, one, 0.2, 0.28).tolist() == exact([-1.28])
    assert clipped_surrogate(logs(0.5), zero, -one, 0.2, 0.28).tolist() == exact([0.8])


# -A log pi: A = 2, log pi = log 0.25 = -1.386294; 2.772589
def test_policy_gradient_is_minus_advantage_times_logprob():
    new = logs(0.25)
    losses = policy_gradient(new, torch.tensor([2.0]).double())
    assert losses.tolist() == exact([2.7725887])
    losses.sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == exact([-2.0])


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
    loss = Loss(surrogate="policy_gradient", kl=1.0)
    zero = torch.zeros(3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((old.exp() * token_losses(loss, policy, old, zero, reference)).sum(), logits)
    assert gradient.tolist() == pytest.approx(exact_gradient.tolist(), rel=0, abs=1e-12)


def test_the_loss_is_the_policy_term_plus_the_weighted_kl():
    loss = Loss(epsilon=0.2, epsilon_high=0.2, kl=0.5)
    # ratio 1, A = 3: -3; k3 of log 2: 0.193147, halved 0.0965736
    total = token_losses(loss, logs(0.5), logs(0.5).detach(), torch.tensor([3.0]).double(), logs(0.25).detach())
    assert total.tolist() == exact([-2.9034264])


def test_clip_share_counts_tokens_whose_gradient_is_cut():
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0]).double()
    cut = clip_share(logs(1.5, 1.5, 0.5, 0.5), torch.zeros(4).double(), advantages, Loss())
    assert cut.tolist() == [True, False, False, True]


def test_the_clip_cuts_beyond_its_bounds_not_at_them_and_by_the_advantages_sign():
    """exp(log 2) is 2 and exp(log 1/2) is 1/2, exactly."""
    bounds = Loss(epsilon=0.5, epsilon_high=1.0)
    at = clip_share(logs(2.0, 0.5), torch.zeros(2).double(), torch.tensor([1.0, -1.0]).double(), bounds)
    assert at.tolist() == [False, False]
    signs = torch.tensor([0.0, 0.5, 0.0, -0.5]).double()
    assert clip_share(logs(0.2, 0.2, 3.0, 3.0), torch.zeros(4).double(), signs, bounds).tolist() == [False] * 4
