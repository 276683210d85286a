"""The shared-prefix update against padded rows: the same gradient, in how much of the time.

Rows are tried in micro-batches of several sizes, and the best is taken. 3.3 million parameters, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

import torch

from coterie.bench import Say
from coterie.bench.models import medium
from coterie.kernel.episode import Sample
from coterie.kernel.team import Graded
from coterie.learning.batch import Row, rows_of
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip, Tokens
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models.load import Model

SHAPES = ((4, 4, 200, 50), (4, 8, 300, 50))
"""Groups, samples a group, prompt tokens, completion tokens."""
ROW_BATCHES = (1, 2, 4, 8, 16)
REPEATS = 5


def run(say: Say) -> dict[str, Any]:
    """For each shape: relative gradient difference, with checkpointing too, and the ratio of times."""
    torch.set_num_threads(1)
    model = medium()
    figures: dict[str, Any] = {}
    for shape in SHAPES:
        name = "x".join(map(str, shape))
        rows = _rows(*shape)
        plain = _learner(model, checkpointing=False)
        exact = _gradient(model, lambda rows=rows: _by_rows(model, rows, 1))
        packed = _gradient(model, lambda rows=rows, plain=plain: plain.accumulate("p", rows))
        figures[f"{name}_difference"] = _relative(packed, exact)
        ways: dict[str, Callable[[], object]] = {"packed": lambda rows=rows, plain=plain: plain.accumulate("p", rows)}
        ways |= {f"rows of {size}": lambda rows=rows, size=size: _by_rows(model, rows, size) for size in ROW_BATCHES}
        times = {way: [] for way in ways}
        for repeat in range(REPEATS + 1):
            for way, work in ways.items():
                began = time.perf_counter()
                _gradient(model, work)
                if repeat:
                    times[way].append(time.perf_counter() - began)
            say(f"{name}: round {repeat} of {REPEATS}")
        medians = {way: median(values) for way, values in times.items()}
        rows_best = min((value, way) for way, value in medians.items() if way != "packed")
        figures[f"{name}_ratio"] = round(rows_best[0] / medians["packed"], 2)
        figures[f"{name}_against"] = rows_best[1]
        checkpointed = _learner(model, checkpointing=True)
        again = _gradient(model, lambda rows=rows, learner=checkpointed: learner.accumulate("p", rows))
        figures[f"{name}_difference_checkpointing"] = _relative(again, exact)
        model.net.gradient_checkpointing_disable()
    return figures


def _learner(model: Model, *, checkpointing: bool) -> LocalLearner:
    optimizer = OptimizerConfig.model_validate({"checkpointing": checkpointing})
    return LocalLearner({"p": Policy("p", model, optimizer=optimizer)}, Clip(), 1)


def _rows(groups: int, size: int, prompt: int, completion: int) -> list[Row]:
    rng = Random(0)
    graded: list[Graded] = []
    for group in range(groups):
        ids = tuple(rng.randrange(3, 300) for _ in range(prompt))
        for _ in range(size):
            reply = tuple(rng.randrange(3, 300) for _ in range(completion))
            old = tuple(-6.0 + rng.random() for _ in reply)
            graded.append(
                Graded(Sample("a", "p", 0, ids, reply, old, "length", ""), rng.uniform(-1, 1), 1.0, str(group))
            )
    return rows_of(graded, Clip())


def _by_rows(model: Model, rows: list[Row], size: int) -> None:
    """The usual update: whole sequences side by side, logits of the completion only."""
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        ids = torch.tensor([row.prompt_ids + row.completion_ids for row in part])
        length = len(part[0].completion_ids)
        net: Any = model.net
        logits = net(input_ids=ids, use_cache=False, logits_to_keep=length + 1).logits[:, :-1].float()
        logits[..., model.vocabulary :] = float("-inf")
        logprobs = torch.log_softmax(logits, -1).gather(-1, ids[:, -length:, None])[..., 0]
        old = torch.tensor([row.rollout_logprobs for row in part])
        advantages = torch.tensor([[row.advantage] * length for row in part])
        each = torch.arange(len(part)).repeat_interleave(length)
        lengths = torch.full((len(part),), length)
        losses = Clip()(Tokens(logprobs.flatten(), old.flatten(), old.flatten(), advantages.flatten(), each, lengths))
        (losses * part[0].token_weight).sum().backward()


def _gradient(model: Model, work: Callable[[], object]) -> torch.Tensor:
    model.net.zero_grad(set_to_none=True)
    work()
    return torch.cat([weight.grad.flatten() for weight in model.net.parameters() if weight.grad is not None])


def _relative(left: torch.Tensor, right: torch.Tensor) -> float:
    return float(f"{float((left - right).norm() / right.norm()):.1e}")
