"""The update with packs against the update with single rows: equal gradients, relative time, and share of peak speed.

A group has 8 replies of 50 tokens to one prompt of 100 to 4,000 tokens. Rows use the better of micro-batches of 1 and
8. Useful operations are the matrix products that a forward and a backward pass of the pack's tokens need, including the
visible pairs of attention. Peak speed is that of a product of large float32 matrices, measured in the same benchmark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import median
from typing import Any

import torch

from benchmarks.models import random_qwen3
from coterie.bench import Say
from coterie.kernel.episode import Sample
from coterie.kernel.team import Graded
from coterie.learning.batch import Row, pack, rows_of
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip, Tokens
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models.attention import pairs
from coterie.models.load import Model

SIZES: Mapping[str, Mapping[str, Any]] = {
    "0.85M": {"width": 128, "inner": 384, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32},
    "4.85M": {"width": 256, "inner": 768, "layers": 6, "heads": 8, "kv_heads": 4, "head_dim": 32},
    "33M": {"width": 512, "inner": 1536, "layers": 10, "heads": 8, "kv_heads": 4, "head_dim": 64},
}
"""Shapes of networks like Qwen3, by name."""
PROMPTS = {"0.85M": (100, 300, 1000, 4000), "4.85M": (100, 300, 1000), "33M": ()}
"""Numbers of tokens of the prompts that are compared with rows, by network."""
SHARE_PROMPT = 200
"""Number of tokens of the prompt whose update is held against the machine's best speed."""
SAMPLES, REPLY = 8, 50
ROWS = (1, 8)
"""Numbers of rows of a micro-batch."""
REPEATS = 3


def run(say: Say) -> dict[str, Any]:
    """Returns relative gradient difference and time ratio by size and prompt, and the share of the best speed."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    figures: dict[str, Any] = {}
    for size, shape in SIZES.items():
        model = random_qwen3(448, context=8192, **shape)
        for prompt in PROMPTS[size]:
            figures |= _compared(f"{size}, {prompt}", model, rows_of_groups(1, SAMPLES, prompt, REPLY), say)
        figures[f"{size}, {SHARE_PROMPT}: share of the best"] = _share(
            model, rows_of_groups(1, SAMPLES, SHARE_PROMPT, REPLY)
        )
        say(f"{size}: {figures[f'{size}, {SHARE_PROMPT}: share of the best']:.0%} of the machine's best")
    return figures


def _compared(name: str, model: Model, rows: list[Row], say: Say) -> dict[str, Any]:
    plain, again = learner_of(model), learner_of(model, checkpointing=True)
    exact = _gradient(model, lambda: by_rows(model, rows, 1))
    figures: dict[str, Any] = {}
    for learner, what in ((again, "gradient, with checkpointing"), (plain, "gradient")):
        found = _gradient(model, lambda learner=learner: learner.accumulate("p", rows))
        figures[f"{name}: {what}"] = _relative(found, exact)
        model.net.gradient_checkpointing_disable()
    ways: dict[str, Callable[[], object]] = {"packed": lambda: plain.accumulate("p", rows)}
    ways |= {f"rows of {size}": lambda size=size: by_rows(model, rows, size) for size in ROWS}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(REPEATS + 1):
        for way, work in ways.items():
            took = _seconds(model, work)
            if repeat:  # the first warms up
                times[way].append(took)
    medians = {way: median(values) for way, values in times.items()}
    best, way = min((value, way) for way, value in medians.items() if way != "packed")
    tokens = sum(one.tokens for one in pack(rows, 1 << 20))
    figures[f"{name}: times as fast"] = round(best / medians["packed"], 2)
    figures[f"{name}: tokens alone"] = round(sum(row.tokens for row in rows) / tokens, 2)
    figures[f"{name}: ms a sampled token"] = round(
        1000 * medians["packed"] / sum(len(row.completion_ids) for row in rows), 3
    )
    say(f"{name}: {best / medians['packed']:.2f} times as fast as {way}")
    return figures


def _share(model: Model, rows: list[Row]) -> float:
    """Returns the share of the machine's best speed that the update reaches, measured in turns with it."""
    learner = learner_of(model)
    matrix, shares = torch.randn(1024, 1024), list[float]()
    for repeat in range(2 * REPEATS + 1):
        began = time.perf_counter()
        for _ in range(8):
            torch.mm(matrix, matrix)
        best = 8 * 2 * 1024**3 / (time.perf_counter() - began)
        took = _seconds(model, lambda: learner.accumulate("p", rows))
        if repeat:
            shares.append(useful(model, rows) / took / best)
    return round(median(shares), 3)


def useful(model: Model, rows: Sequence[Row]) -> float:
    """Returns the operations of a forward and a backward pass: three products of each pair of numbers, two each.

    Of what rows share the last layer's keys and values alone are needed, for nothing in it predicts a trained token.
    """
    config, total = model.config, 0.0
    inside = sum(
        weight.numel() for name, weight in model.net.named_parameters() if weight.ndim > 1 and "embed" not in name
    )
    last = f".{config.num_hidden_layers - 1}."
    spared = sum(
        weight.numel()
        for name, weight in model.net.named_parameters()
        if weight.ndim > 1 and last in name and "k_proj" not in name and "v_proj" not in name
    )
    for one in pack(rows, 1 << 20):
        replies = sum(len(row.completion_ids) for row in one.rows)
        seen = pairs(one.shared, [row.tokens - one.shared for row in one.rows])
        scores = config.num_hidden_layers * seen - pairs(one.shared, [])
        attention = 2 * config.num_attention_heads * config.head_dim * scores
        total += 6 * (
            inside * one.tokens - spared * one.shared + config.hidden_size * config.vocab_size * replies + attention
        )
    return total


def _seconds(model: Model, work: Callable[[], object]) -> float:
    model.net.zero_grad(set_to_none=True)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def learner_of(model: Model, *, checkpointing: bool = False) -> LocalLearner:
    """Returns a learner of one policy, p."""
    optimizer = OptimizerConfig(checkpointing=checkpointing, tokens_per_microbatch=8192)
    return LocalLearner({"p": Policy("p", model, optimizer=optimizer)}, Clip(), 1)


def rows_of_groups(groups: int, size: int, prompt: int, completion: int) -> list[Row]:
    """Returns rows of random replies of so many groups to a prompt each, all of one length."""
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


def by_rows(model: Model, rows: Sequence[Row], size: int, dtype: torch.dtype = torch.float32) -> None:
    """Adds up gradients in the usual way: whole sequences side by side, logits of the completion only.

    Args:
        dtype: what the network computes in; another than float32 by autocast.
    """
    with torch.device(model.device), torch.autocast(model.device.type, dtype=dtype, enabled=dtype != torch.float32):
        _by_rows(model, rows, size)


def _by_rows(model: Model, rows: Sequence[Row], size: int) -> None:
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
