"""Several ranks learn what one process learns. Everything is computed once, by one, two and four processes."""

import contextlib
import dataclasses
import math
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from coterie.errors import UpdateError
from coterie.learning.batch import rows_of
from coterie.learning.fsdp import Sharded
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip
from coterie.learning.ranks import Ranks
from coterie.models.adapters import adapted
from tests.learning.test_learner import experience
from tests.toys import policies, tiny

pytestmark = pytest.mark.slow
FOUR = pytest.param(4, marks=pytest.mark.long)
SIZES = (1, 2, 4)
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "full, checkpointed": {"checkpointing": True},
    "lora": {"lora": True},
    "lora, checkpointed, on a bfloat16 base": {"lora": True, "checkpointing": True, "base": torch.bfloat16},
    "two steps, corrected, with kl": {"updates": 2, "loss": Clip(kl=0.1, correction="token_truncate")},
}


def model_of(lora: bool, base: torch.dtype):
    model = tiny(scale=3.0)
    if not lora:
        return model
    model.net.requires_grad_(False).to(base)
    model = adapted(model, rank=3, alpha=8.0, seed=1, where="p")
    drawn = torch.Generator().manual_seed(0)
    for weight in model.trained:
        weight.data.copy_(0.1 * torch.randn(weight.shape, generator=drawn))
    return model


def made(
    ranks: Ranks,
    *,
    lora: bool = False,
    base: torch.dtype = torch.float32,
    checkpointing: bool = False,
    updates: int = 1,
    loss: Clip = Clip(),  # noqa: B008
    checkpoint: Path | None = None,
) -> LocalLearner:
    settings = {
        "checkpointing": checkpointing, "updates_per_step": updates, "tokens_per_microbatch": 64, "lr": 1e-2,
        "eps": 1e-4,  # else a gradient of nothing but rounding is divided by itself
    }  # fmt: skip
    return LocalLearner(policies({"p": model_of(lora, base)}, **settings), loss, 10, checkpoint=checkpoint, ranks=ranks)


def moved(ranks: Ranks, trainer: LocalLearner) -> torch.Tensor:
    weights = [ranks.whole(weight.detach()).float().flatten() for weight in trainer.trainees["p"].model.trained]
    return torch.cat(weights)


def case(ranks: Ranks, **settings) -> dict[str, Any]:
    """A gradient, five updates and what was told of them."""
    trainer = made(ranks, **settings)
    graded = experience(groups=7)
    trainer.accumulate("p", rows_of(graded, trainer.loss))
    gradient = torch.cat([ranks.whole(weight.grad).flatten() for weight in trainer.trainees["p"].model.trained])
    trainer.trainees["p"].optimizer.zero_grad(set_to_none=True)
    told = [trainer.update({"p": experience(seed, groups=5)}, seed)["p"] for seed in range(5)]
    return {
        "gradient": gradient,
        "moved": moved(ranks, trainer),
        "metrics": [dict(learned.metrics) for learned in told],
        "apart": [isinstance(weight, DTensor) for net in (trainer.trainees["p"].model, trainer.trainees["p"].reference)
                  if net for weight in net.net.parameters()],
        "roles": [dataclasses.astuple(learned.roles["a"]) for learned in told],
    }  # fmt: skip


def refused(ranks: Ranks) -> dict[str, Any]:
    """What is said of a group that is not finite, and whether weights moved."""
    trainer = made(ranks)
    before = moved(ranks, trainer)
    spoilt = [
        dataclasses.replace(one, advantage=math.inf) if one.group == "g2" else one for one in experience(groups=5)
    ]
    with contextlib.suppress(UpdateError):
        trainer.update({"p": spoilt}, 0)
        return {"said": "nothing"}
    said = ""
    try:
        trainer.update({"p": spoilt}, 0)
    except UpdateError as error:
        said = str(error)
    return {"said": said, "still": torch.equal(before, moved(ranks, trainer))}


def went_on(ranks: Ranks, folder: Path, *, lora: bool) -> torch.Tensor:
    """Weights after a step that follows a checkpoint."""
    trainer = made(ranks, lora=lora, checkpoint=folder)
    assert trainer.trainees["p"].optimizer.param_groups[0]["lr"] == pytest.approx(8e-3), "of step 2 of 10, from 1e-2"
    trainer.update({"p": experience(7, groups=5)}, 3)
    return moved(ranks, trainer)


def written(ranks: Ranks, folder: Path, *, lora: bool) -> None:
    """A checkpoint after three steps."""
    trainer = made(ranks, lora=lora)
    for seed in range(3):
        trainer.update({"p": experience(seed, groups=5)}, seed)
    weights = trainer.weights("p")
    if weights:
        trainer.trainees["p"].model.save(folder / "policies" / "p", weights)
    trainer.save(folder)
    ranks.gathered(None)  # nobody reads before all have written


def everything(ranks: Ranks, folder: Path, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {name: case(ranks, **settings) for name, settings in CASES.items()}
    found["refused"] = refused(ranks)
    for lora in (False, True):
        written(ranks, folder / f"lora-{lora}-{size}", lora=lora)
        for writer in SIZES:
            if (checkpoint := folder / f"lora-{lora}-{writer}").exists():
                found[f"went on, lora {lora}, written by {writer}"] = went_on(ranks, checkpoint, lora=lora)
    return found


def work(rank: int, size: int, folder: Path) -> None:
    """One process of several."""
    torch.set_num_threads(1)
    ranks = Sharded(rank, size, f"file://{folder}/store-{size}", device="cpu", timeout_s=120.0)
    found = everything(ranks, folder, size)
    if rank == 0:
        torch.save(found, folder / f"found-{size}")
    ranks.gathered(None)
    os._exit(0)  # as a rank of a run ends


@pytest.fixture(scope="module")
def found(tmp_path_factory, request) -> dict[int, dict[str, Any]]:
    """What one, two and, if they are asked for, four processes compute; larger ones wrote checkpoints for smaller."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn = multiprocessing.get_context("spawn")
    results: dict[int, dict[str, Any]] = {}
    mine = [item for item in request.session.items if item.module is request.module]
    for size in (4, 2) if any(item.get_closest_marker("long") for item in mine) else (2,):
        processes = [spawn.Process(target=work, args=(rank, size, folder)) for rank in range(size)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(240)
            assert process.exitcode == 0, f"exit code {process.exitcode}"
        results[size] = torch.load(folder / f"found-{size}", weights_only=False)
    results[1] = everything(Ranks(), folder, 1)
    return results


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, FOUR])
def test_gradients_weights_and_metrics_are_those_of_one_process(found, size, name):
    alone, several = found[1][name], found[size][name]
    assert all(several["apart"]), "whole on every rank"
    assert not any(alone["apart"])
    assert far(several["gradient"], alone["gradient"]) < 1e-5
    # rounded to 8 bits, a difference of 1e-7 in an adapter is one of 1e-2 after five updates: measured in one process
    assert far(several["moved"], alone["moved"]) < (2e-2 if CASES[name].get("base") else 1e-5)
    for mine, theirs in zip(several["metrics"], alone["metrics"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4)
    for mine, theirs in zip(several["roles"], alone["roles"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, FOUR])
def test_what_is_not_finite_is_refused_by_all_and_moves_nothing(found, size):
    assert found[size]["refused"]["said"].startswith("the update of policy 'p' is not finite, in group g2")
    assert found[size]["refused"]["still"]


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize(
    ("writer", "reader"), [(2, 2), (2, 1), *(pytest.param(4, reader, marks=pytest.mark.long) for reader in (4, 2, 1))]
)
def test_a_checkpoint_of_any_number_of_ranks_goes_on_with_any_other(found, writer, reader, lora):
    alone = found[1][f"went on, lora {lora}, written by 1"]
    assert far(found[reader][f"went on, lora {lora}, written by {writer}"], alone) < 1e-5


@pytest.mark.long
def test_a_checkpoint_of_one_process_goes_on_with_two(tmp_path):
    written(Ranks(), tmp_path / "lora-False-1", lora=False)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work_on, args=(rank, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    alone = went_on(Ranks(), tmp_path / "lora-False-1", lora=False)
    assert far(torch.load(tmp_path / "found"), alone) < 1e-5


def work_on(rank: int, folder: Path) -> None:
    """One of two processes that go on from the checkpoint of one."""
    torch.set_num_threads(1)
    ranks = Sharded(rank, 2, f"file://{folder}/store", device="cpu", timeout_s=120.0)
    weights = went_on(ranks, folder / "lora-False-1", lora=False)
    if rank == 0:
        torch.save(weights, folder / "found")
    ranks.gathered(None)
    os._exit(0)
