"""A pack's attention without its mask: the same numbers and gradients as with it, and chosen where it is faster."""

import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from coterie.models import attention
from coterie.models.attention import Split, pairs, parts, splits, weighed

SHAPES = [(0, [3]), (0, [3, 5]), (7, [4]), (20, [5, 1, 9]), (60, [17] * 6)]


def some(count: int, heads: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """As projections give it: (1, heads, count, size), tokens before heads in memory."""
    return torch.randn(1, count, heads, size, dtype=dtype).transpose(1, 2).requires_grad_()


def masked(query, key, value, shared, lengths, scale):
    """The formula: every token sees the prefix and its own row, up to itself."""
    owners = torch.tensor([0] * shared + [row for row, size in enumerate(lengths, 1) for _ in range(size)])
    seen = (owners == 0) | (owners[:, None] == owners)
    seen &= torch.ones(len(owners), len(owners), dtype=torch.bool).tril()
    keys, values = (tensor.repeat_interleave(query.shape[1] // key.shape[1], 1) for tensor in (key, value))
    return scaled_dot_product_attention(query, keys, values, attn_mask=seen, scale=scale)


@pytest.mark.parametrize(("shared", "lengths"), SHAPES)
@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_are_the_whole_forward_and_backward(shared, lengths, anywhere, dtype, monkeypatch):
    if anywhere:
        monkeypatch.setattr(attention, "_on_cpu", lambda *_: False)
    torch.manual_seed(0)
    count = shared + sum(lengths)
    given = some(count, 4, 16, dtype), some(count, 2, 16, dtype), some(count, 2, 16, dtype)
    pull = torch.randn(1, 4, count, 16, dtype=dtype)
    expected = masked(*given, shared, lengths, 0.3)
    found = parts(*given, Split.of(shared, lengths, torch.device("cpu")), 0.3)
    close = 2e-6 if dtype == torch.float32 else 0.03
    for mine, theirs in zip(
        (found, *torch.autograd.grad(found, given, pull)),
        (expected, *torch.autograd.grad(expected, given, pull)),
        strict=True,
    ):
        assert mine.dtype == dtype
        apart = (mine - theirs).detach().float().norm() / (theirs.detach().float().norm() + 1e-9)
        assert float(apart) < close


def test_keys_and_values_of_other_sizes_are_attended_to():
    torch.manual_seed(0)
    query, key, value = some(9, 2, 16, torch.float32), some(9, 2, 16, torch.float32), some(9, 2, 8, torch.float32)
    found = parts(query, key, value, Split.of(5, [2, 2], torch.device("cpu")), 0.25)
    assert torch.allclose(found, masked(query, key, value, 5, [2, 2], 0.25), atol=1e-6)


def test_what_more_a_layer_does_is_refused_and_not_left_out():
    query = some(4, 2, 8, torch.float32)
    split = {attention.KEYWORD: Split.of(2, [1, 1], torch.device("cpu"))}
    for way in (split, {attention.KEYWORD: attention.CAUSAL}):
        for more in ({"softcap": 30.0}, {"s_aux": torch.ones(2)}, {"sliding_window": 2}):
            with pytest.raises(ValueError, match=f"cannot do without a mask: {next(iter(more))}"):
                attention.attention(torch.nn.Module(), query, query, query, None, **way, **more)
    # rows are of three tokens each, however long the pack is
    whole, _ = attention.attention(torch.nn.Module(), query, query, query, None, **split, sliding_window=3)
    assert whole.shape == (1, 4, 2, 8)


# prefix 10: 50 pairs; rows of 4 and 2 see 10 + themselves: 40 + 8 and 20 + 2
def test_pairs_by_hand():
    assert pairs(10, [4, 2]) == 50 + 48 + 22
    assert pairs(0, [6]) == 18


def test_a_mask_costs_more_the_longer_a_pack_is():
    chosen = [splits(prompt, [50] * 8, prompt + 400, 128) for prompt in (10, 100, 300, 1000, 4000)]
    assert chosen[0] is False
    assert chosen[-1] is True
    assert all(not before or after for before, after in pairwise(chosen))
    assert splits(300, [50] * 8, 700, 4096), "and the wider a network is"


def test_replies_that_begin_alike_stay_under_a_mask():
    assert splits(300, [200] * 8, 1900, 128)
    assert not splits(300, [200] * 8, 1000, 128), "900 tokens would be computed twice"


# e^0 / (e^0 + e^200) is 0 in float32, and e^200 is no number there
def test_a_mean_by_scores_that_are_far_apart():
    found, sums = weighed(torch.tensor([[0.0, 200.0], [1.0, 1.0]]), torch.tensor([[5.0], [7.0]]))
    assert found.tolist() == [[7.0], [6.0]]
    assert sums.tolist() == pytest.approx([200.0, 1 + math.log(2)])
