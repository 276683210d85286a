"""What is said to grow: operations by hand, and a step of every figure."""

from __future__ import annotations

import pytest

from benchmarks import growth
from benchmarks.growth import GROWTH, NETWORKS, ROUNDS, Size, grown, page, sizes


# a layer: 8 x (2 x 8 + 2 x 4) + 3 x 8 x 16 = 576; tokens 3 + 2 x 1; pairs 4 + 2 x (3 + 0), 2 x 8 operations each; of
# 4 words 8 x 448 each
def test_operations_by_hand(monkeypatch):
    shape = {"width": 8, "inner": 16, "layers": 3, "heads": 2, "kv_heads": 1, "head_dim": 4}
    monkeypatch.setitem(NETWORKS, "tiny", shape)
    size = Size(roles=1, turns=1, replies=2, tasks=1, prompt=3, network="tiny", reply=2)
    assert size.operations == 8 * (3 * (576 * 5 + 16 * 10) + 8 * 448 * 4)
    assert Size(roles=4).operations == 2 * Size().operations


def test_one_figure_grows_at_a_time():
    told = list(sizes())
    assert {figure for figure, _ in told} == set(GROWTH)
    for figure, size in told:
        odd = {name for name in GROWTH if getattr(size, name) != getattr(Size(), name)}
        assert odd <= {figure}
    assert {size.roles for _, size in told} <= set(ROUNDS)


def test_the_page_holds_time_against_work():
    measured = [(Size(tasks=1), 2.0), (Size(tasks=4), 6.0)]
    assert grown(measured) == [pytest.approx(0.75)]
    assert page({"tasks": measured})[-2] == "| tasks | 4 | 6.00 | 3.0 | 4.0 | 0.75 |"


@pytest.mark.slow
def test_a_step_is_timed_in_which_every_reply_is_trained(monkeypatch):
    monkeypatch.setattr(growth, "STEPS", 1)
    assert growth._seconds(Size(roles=4, turns=3, replies=2, tasks=2, prompt=20, reply=4)) > 0
