"""The recorded way of decoding, computed without a recording; on CUDA it is `tests/gpu`."""

from __future__ import annotations

import pytest
import torch

from benchmarks.models import random_qwen3
from coterie.engines import graphs
from coterie.engines.decoding import Decoder, costs_of
from coterie.engines.graphs import Graphs, recordable
from coterie.engines.steps import Modules
from coterie.engines.transformers import TransformersEngine
from coterie.learning.policy import Policy
from coterie.models.load import Model
from tests.engines.test_engine import prompts, request, run


@pytest.fixture(autouse=True)
def _moving_and_growing_soon(monkeypatch):
    monkeypatch.setattr(graphs, "FEW", 1)
    monkeypatch.setattr(graphs, "GROWTH", 2)


def model() -> Model:
    made = random_qwen3(448, 48, 64, layers=2, heads=4, kv_heads=2, head_dim=16)
    made.net.eval().requires_grad_(requires_grad=False)
    for weight in made.net.parameters():
        weight.mul_(3)
    return made


def told(steps, ragged: bool) -> list[torch.Tensor]:
    """Logits of prompts and of tokens that follow, while rows end: of all, in the order in which they are."""
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 300, (3, 9), generator=chance)
    mask = (torch.arange(9) >= torch.tensor([4, 0, 2])[:, None]).long() if ragged else None
    rows = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    found = [steps.start(ids, mask, rows, 12)]
    for kept in (None, [0, 6, 2, 3, 4, 5], None, [0, 1, 5], [2, 1], None, None, None, [1], None):
        alive = len(found[-1])
        if kept is not None:
            steps.keep(torch.tensor(kept))
            alive = len(kept)
        found.append(steps.step(torch.randint(3, 300, (alive,), generator=chance)))
    steps.clear()
    return found


@pytest.mark.parametrize("ragged", [False, True])
@torch.no_grad()
def test_it_says_what_the_modules_say_while_rows_end_and_move(ragged):
    net = model().net
    steps = Graphs(net)
    told_by_modules = told(Modules(net), ragged)
    assert float(told_by_modules[-1].std()) > 0.1  # they do say something
    for mine, theirs in zip(told(steps, ragged), told_by_modules, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-4)
    for again, theirs in zip(told(steps, not ragged), told(Modules(net), not ragged), strict=True):
        torch.testing.assert_close(again, theirs, rtol=0, atol=1e-4)  # nothing is left of the prompts before


@torch.no_grad()
def test_rows_move_together_once_half_of_them_have_ended():
    steps = Graphs(model().net)
    steps.start(torch.full((1, 5), 7), None, torch.zeros(8, dtype=torch.int64), 4)
    sizes = []
    for count in (8, 5, 4, 3, 2, 1):
        steps.keep(torch.arange(count))
        sizes.append(len(steps._slabs.keys[0]))
    assert sizes == [8, 8, 4, 4, 2, 1]
    assert steps._slabs.keys[0].shape[2] == 16  # 9 tokens, in columns of 16


@pytest.mark.parametrize(("growth", "expected"), [(2, [16] * 4 + [32] * 16 + [48] * 16), (20, [32] * 20 + [48] * 16)])
@torch.no_grad()
def test_what_is_set_aside_grows_as_it_is_filled_and_no_further_than_the_room(growth, expected, monkeypatch):
    monkeypatch.setattr(graphs, "GROWTH", growth)
    steps = Graphs(model().net)
    steps.start(torch.full((1, 12), 7), None, torch.zeros(3, dtype=torch.int64), 36)
    columns = []
    for _ in range(36):
        steps.step(torch.full((3,), 9))
        columns.append(steps._slabs.values[1].shape[2])
    assert columns == expected
    assert steps._seen.shape[-1] == 48


def test_a_row_is_counted_with_all_that_is_set_aside_for_it():
    """17 columns take 32: what lies beside is in what a row takes, whatever its length."""
    net = model().net
    costs = costs_of(net, Graphs(net), pads=False)
    assert costs.row + 17 * costs.token >= 32 * 2 * 2 * 2 * 16 * 4


def test_a_wave_is_the_same_by_a_graph():
    wave = [request(prompt, [7, 8], key=at, max_tokens=5 + at) for at, prompt in enumerate(prompts(4))]
    answers = []
    for recorded in (True, False):
        made = model()
        made.lean = False
        engine = TransformersEngine({"p": Policy("p", made)})
        engine._decoders["p"].graphs = recorded
        answers.append(run(engine.generate(wave)))
    mine, theirs = ([sample for group in answer for sample in group] for answer in answers)
    assert [sample.completion_ids for sample in mine] == [sample.completion_ids for sample in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert list(one.logprobs) == pytest.approx(list(other.logprobs), rel=0, abs=1e-5)


def test_what_it_takes_of_a_token_is_counted():
    """Two layers with keys and values of two heads of 16 numbers, four bytes each, and a byte of the mask."""
    net = model().net
    assert costs_of(net, Graphs(net), pads=True).token == 2 * 2 * 2 * 16 * 4 + 1


def test_networks_on_a_processor_are_not_recorded():
    made = model()
    assert not recordable(made.net)
    made.lean = False
    assert isinstance(Decoder(Policy("p", made)).steps(), Modules)
