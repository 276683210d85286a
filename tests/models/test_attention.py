"""A pack's attention without its mask: the same numbers and gradients as with it, and chosen where it is faster."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from coterie.models import attention
from coterie.models.attention import Split, pairs, parts, splits, weighed

SHAPES = [(0, [3]), (0, [3, 5]), (7, [4]), (20, [5, 1, 9]), (60, [17] * 6)]
SEVERAL = [
    [(7, [4, 4]), (7, [4, 4])],
    [(7, [4, 2]), (7, [3])],
    [(9, [4, 4]), (3, [4, 4]), (20, [4, 4])],
    [(5, [1, 6, 2]), (0, [3, 3]), (12, [2])],
    [(4, [2, 5]), (0, [1])],
]
"""Packs in one line: of one size; of one prefix; of one length; of none; the last without a prefix."""


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


def in_line(packs, query, key, value, scale):
    """The formula, pack by pack, of a line in which all prefixes come first."""
    before, after, found = 0, sum(shared for shared, _ in packs), ([], [])
    for shared, lengths in packs:
        places = [*range(before, before + shared), *range(after, after + sum(lengths))]
        out = masked(query[:, :, places], key[:, :, places], value[:, :, places], shared, lengths, scale)
        for part, side in zip(out.split([shared, sum(lengths)], dim=2), found, strict=True):
            side.append(part)
        before, after = before + shared, after + sum(lengths)
    return torch.cat([*found[0], *found[1]], dim=2)


def test_a_window_shorter_than_prefix_and_row_is_refused():
    query = some(10, 2, 8, torch.float32)
    split = {attention.KEYWORD: Split.of([(2, [8])], torch.device("cpu"))}
    attention.attention(torch.nn.Module(), query, query, query, None, **split, sliding_window=10)
    with pytest.raises(ValueError, match="sliding_window"):
        attention.attention(torch.nn.Module(), query, query, query, None, **split, sliding_window=9)


@pytest.mark.parametrize("packs", [[shape] for shape in SHAPES] + SEVERAL)
@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_parts_are_the_whole_forward_and_backward(packs, anywhere, dtype, last, monkeypatch):
    """last: of tokens after the prefixes alone, as the last layer is asked."""
    if anywhere:
        monkeypatch.setattr(attention, "_on_cpu", lambda *_: False)
    torch.manual_seed(0)
    before = sum(shared for shared, _ in packs)
    count, first = before + sum(size for _, lengths in packs for size in lengths), before if last else 0
    given = some(count, 4, 16, dtype), some(count, 2, 16, dtype), some(count, 2, 16, dtype)
    pull = torch.randn(1, 4, count - first, 16, dtype=dtype)
    expected = in_line(packs, *given, 0.3)[:, :, first:]
    found = parts(given[0][:, :, first:], *given[1:], Split.of(packs, torch.device("cpu")), 0.3)
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
    found = parts(query, key, value, Split.of([(5, [2, 2])], torch.device("cpu")), 0.25)
    assert torch.allclose(found, masked(query, key, value, 5, [2, 2], 0.25), atol=1e-6)


def test_what_more_a_layer_does_is_refused_and_not_left_out():
    query = some(4, 2, 8, torch.float32)
    split = {attention.KEYWORD: Split.of([(2, [1, 1])], torch.device("cpu"))}
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
    chosen = [splits(prompt, [reply] * 8, prompt + 8 * reply, 128) for prompt, reply in ((4, 8), (15, 31), (1000, 50))]
    assert chosen == [False, True, True]
    assert not splits(15, [31] * 7 + [300], 15 + 7 * 31 + 300, 128), "seven rows would be as long as the eighth"


def test_replies_that_begin_alike_stay_under_a_mask():
    assert splits(300, [200] * 8, 1600, 128)
    assert not splits(300, [200] * 8, 1000, 128), "900 tokens would be computed twice"
    assert not splits(300, [200] * 8, 1600, 4096), "and the less so the wider a network is"


# e^0 / (e^0 + e^200) is 0 in float32, and e^200 is no number there
def test_a_mean_by_scores_that_are_far_apart():
    found, sums = weighed(torch.tensor([[0.0, 200.0], [1.0, 1.0]]), torch.tensor([[5.0], [7.0]]))
    assert found.tolist() == [[7.0], [6.0]]
    assert sums.tolist() == pytest.approx([200.0, 1 + math.log(2)])


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_few_queries_are_the_same_with_any_number_of_threads(longest, threads):
    """The library's kernel for CPUs is given four at least: with fewer, its products depend on how many there are."""
    for prefix in (9, 17, 64, 201):
        generator = torch.Generator().manual_seed(prefix)
        total = prefix + 3 * longest
        given = [torch.randn(1, heads, total, 32, generator=generator).requires_grad_() for heads in (4, 2, 2)]
        rows = torch.randn(2, 4, longest, 32, generator=generator).requires_grad_()
        seen = torch.zeros(1, 1, longest, prefix)
        found: list[list[torch.Tensor]] = []
        for count in (1, 2):
            threads(count)
            query, key, value = given
            out = parts(query, key, value, Split.of([(prefix, [longest] * 3)], torch.device("cpu")), 0.2)
            table = key[:, :, :prefix].expand(2, -1, -1, -1)
            last = attention.grouped(rows, table, table, seen, 0.2)
            found.append([out, last, *torch.autograd.grad(out.sin().sum() + last.sin().sum(), [*given, rows])])
        assert all(map(torch.equal, *found)), prefix
