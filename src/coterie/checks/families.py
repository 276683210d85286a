"""The self-test of a network when it is loaded: all ways to run it must give the same numbers, or it is refused.

A network is run in three ways: token by token with a cache (the engine), with rows packed behind a shared prefix (the
learner), and as plain single sequences, which are the reference. Model families handle masks, windows, caches and
padding differently, and errors there are silent. So the test runs a few random tokens, more than a window holds, in
each way. A network that cannot be packed is trained row by row. A network that cannot be padded is decoded in batches
of one length. If the numbers still differ, it is refused. For a large network the test uses one layer of each kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import torch

from coterie.engines.decoding import Decoder, DecodingRow, leans
from coterie.engines.graphs import recordable
from coterie.errors import ConfigError, first_line
from coterie.kernel.engine import Request
from coterie.learning.batch import Row, alone, pack
from coterie.learning.distribution import log_distribution
from coterie.learning.forward import Way, lay_out, score
from coterie.learning.lean import LeanForward, can_lean
from coterie.learning.masks import can_mask
from coterie.learning.policy import Policy
from coterie.models.load import Model, checkpoint_activations

TOLERANCE = 1e-3
"""Nats by which log-probabilities of one sequence may differ in the mean, and the share by which gradients may."""
COARSE = 0.1
"""Tolerance for a network whose weights are in bfloat16, in place of TOLERANCE."""
WINDOW = 8
"""Size of a window or chunk while it is tested, so small that a few tokens are more than it holds."""
PROMPTS = (11, 14)
"""Numbers of tokens of the prompts that are tested; they begin alike, and need padding side by side."""
REPLY = 10
"""Number of tokens of each reply in the test."""
SAMPLES = 2
"""Number of replies to each prompt in the test."""
SMALL = 100_000
"""Maximum number of elements of a weight whose gradient is compared."""
FOUND = "lean", "graphs", "pads", "packs", "splits"
"""Attributes of a model that say how it can be run."""
UNSTEADY = "deterministic"
"""Word in PyTorch's error about an operation that has no GPU kernel with the same numbers every time."""
LARGE = 50_000_000
"""Number of parameters above which a network is tested by a few of its layers."""


def check_family(policy: Policy, *, trained: bool = True) -> None:
    """Finds out how a policy's network can be run, and says so in the attributes FOUND of its model.

    Args:
        trained: whether it is to be trained, too.

    Raises:
        ConfigError: no way of running it gives what it gives plainly, or a kernel that it needs is none that gives the
            same numbers every time.
    """
    try:
        _check_family(policy, trained=trained)
    except RuntimeError as error:
        if UNSTEADY not in str(error):
            raise
        raise _refused(policy, first_line(error)) from error


def _check_family(policy: Policy, *, trained: bool) -> None:
    model = policy.model
    model.lean = model.lean and leans(model.net, _dtype(model), model.device.type)
    if model.lean:
        with _short(model, windows=False), torch.random.fork_rng(devices=[]):
            model.pads = True
            model.lean = _sampled(policy)[1] is None
    model.graphs = model.graphs and recordable(model.net)
    if model.graphs:
        with _short(model, windows=False), torch.random.fork_rng(devices=[]):
            lean, model.lean, model.pads = model.lean, False, True  # or it would be decoded without a graph
            model.graphs = _sampled(policy)[1] is None
            model.lean = lean
    with _short(model), torch.random.fork_rng(devices=[]):
        sampled = _decoded(policy)
        if not trained:
            return
        rows = sorted(Row(row.request.prompt_ids, tuple(row.ids), (), 1.0, 1.0, 1.0, "test") for row in sampled)
        weights = _probed(model)
        expected = _plainly(model, rows, weights)
        model.packs = can_mask(model.config)
        if model.packs and not _agrees(model, rows, weights, expected):
            model.packs = False
        if can_lean(model):
            model.lean = _agrees(model, rows, weights, expected, lean=LeanForward(model))
        if not model.packs and not _agrees(model, rows, weights, expected):
            raise _refused(policy, "the learner's log-probabilities or gradients are not those of a plain forward")
        if policy.optimizer.checkpointing:
            try:
                checkpoint_activations(model.net)
            except ValueError as error:
                raise _refused(policy, f"{first_line(error)}; set optimizer.checkpointing=false") from error
            if not _agrees(model, rows, weights, expected, checkpointing=True):
                raise _refused(policy, "with checkpointing its gradients are others; set optimizer.checkpointing=false")
    model.splits = model.splits and model.packs
    if model.splits:
        with _short(model, windows=False), torch.random.fork_rng(devices=[]):
            weights, again = _probed(model), policy.optimizer.checkpointing
            expected = _plainly(model, rows, weights)
            model.splits = _agrees(model, rows, weights, expected, checkpointing=again, way="parts")


def _decoded(policy: Policy) -> list[DecodingRow]:
    """Returns replies of the engine, whose log-probabilities are those of a plain forward.

    Raises:
        ConfigError: they are not, however they are decoded.
    """
    reason: str | None = None
    for pads in (True, False):
        policy.model.pads = pads
        rows, reason = _sampled(policy)
        if reason is None:
            return rows
    raise _refused(policy, reason or "")


def _sampled(policy: Policy) -> tuple[list[DecodingRow], str | None]:
    """Returns replies of the engine, and the reason why they cannot be right, if they cannot."""
    model = policy.model
    try:
        rows = _sample(policy)
    except Exception as error:  # whatever a family's own code raises, it cannot be run so
        return [], first_line(error)
    worst = max(_distance(_of_reply(model, row.request.prompt_ids, row.ids), row.logprobs) for row in rows)
    if worst <= _tolerance(model):
        return rows, None
    return rows, f"the engine's log-probabilities differ by {worst:.2g} from those of a plain forward"


def _sample(policy: Policy) -> list[DecodingRow]:
    chance = Random(0)
    model = policy.model
    tokens = [token for token in range(model.vocabulary) if token not in model.stop_ids]
    longest = chance.choices(tokens, k=max(PROMPTS))
    prompts = [tuple(longest[:size]) for size in PROMPTS]
    rows = [
        DecodingRow(
            Request(("test", 0, "", str(index)), policy.name, "", "", prompt, (seed,), 1.0, 1.0, REPLY, ()),
            seed,
            Random(seed),
        )
        for index, prompt in enumerate(prompts)
        for seed in range(SAMPLES)
    ]
    decoder = Decoder(replace(policy, dtype=_dtype(model)))
    for batch in decoder.batches(rows, math.inf):
        decoder.fill(batch)
    return rows


def _of_reply(model: Model, prompt: Sequence[int], reply: Sequence[int]) -> torch.Tensor:
    """Returns log-probabilities of a reply's tokens by a plain forward, with a gradient where there is one."""
    net: Any = model.net
    ids = torch.tensor([(*prompt, *reply)], device=model.device)
    logits = net(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    distribution = log_distribution(logits, 1.0, model.vocabulary)
    return distribution.gather(-1, ids[0, len(prompt) :, None])[:, 0]


def _distance(found: torch.Tensor, expected: Sequence[float]) -> float:
    distance = (found.detach().cpu() - torch.tensor(expected)).abs().mean()
    return float(distance) if distance.isfinite() else float("inf")


def _probed(model: Model) -> Sequence[torch.Tensor]:
    """Returns weights whose gradients are compared: small ones, which every layer has and which cost no memory."""
    weights = sorted((weight for weight in model.net.parameters() if weight.requires_grad), key=torch.numel)
    return [weight for weight in weights if weight.numel() <= SMALL] or weights[:1]


def _gradients(logprobs: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the gradients of a sum in which no two tokens count alike, on weights that may not be in use."""
    counts = torch.linspace(1, 2, len(logprobs), device=logprobs.device)
    found = torch.autograd.grad((logprobs * counts).sum(), weights, allow_unused=True, materialize_grads=True)
    return [gradient.detach().float().cpu() for gradient in found]


def _plainly(model: Model, rows: Sequence[Row], weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns log-probabilities and gradients, computed a sequence at a time."""
    logprobs = [_of_reply(model, row.prompt_ids, row.completion_ids) for row in rows]
    return [torch.cat(logprobs).detach(), *_gradients(torch.cat(logprobs), weights)]


def _agrees(
    model: Model,
    rows: Sequence[Row],
    weights: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    *,
    checkpointing: bool = False,
    way: Way = "masks",
    lean: LeanForward | None = None,
) -> bool:
    """Returns True if the learner's own way gives the same log-probabilities and gradients as `expected`."""
    batches = [[one] for one in pack(rows, 1 << 20)] if model.packs else alone(rows)
    model.net.train(checkpointing)
    try:
        logprobs = torch.cat([score(model, lay_out(one, way), _dtype(model), lean).logprobs for one in batches])
        found = [logprobs.detach(), *_gradients(logprobs, weights)]
    except Exception:  # whatever a family's own code raises, it cannot be run so
        return False
    finally:
        model.net.eval()
    if _distance(found[0], expected[0].tolist()) > _tolerance(model):
        return False
    ours, theirs = (torch.cat([gradient.flatten() for gradient in side[1:]]) for side in (found, expected))
    return bool((ours - theirs).norm() <= _tolerance(model) * theirs.norm())


def _dtype(model: Model) -> torch.dtype:
    """Returns the data type of the weights: a base that is not trained may be in bfloat16."""
    return next(model.net.parameters()).dtype


def _tolerance(model: Model) -> float:
    return TOLERANCE if _dtype(model) == torch.float32 else COARSE


def _refused(policy: Policy, reason: str) -> ConfigError:
    if UNSTEADY in reason:
        reason = f"{reason.partition(',')[0]}; with train.deterministic=false they can, and a resume is not exact"
    return ConfigError(
        f"policies.{policy.name}.model: models of the family '{policy.model.family}' cannot be used here: {reason}"
    )


@contextmanager
def _short(model: Model, *, windows: bool = True) -> Iterator[None]:
    """Gives a model windows and chunks that a few tokens outgrow and, if it is large, few layers, while it lasts.

    Args:
        windows: whether they are made so small; otherwise they are what they are.
    """
    config, before = model.config, dict[str, Any]()
    layers = _layers(model) if model.size > LARGE else None
    try:
        for name in ("sliding_window", "attention_chunk_size"):
            if windows and (getattr(config, name, None) or 0) > WINDOW:
                before[name] = getattr(config, name)
                setattr(config, name, WINDOW)
        if layers is not None:
            parent, name, whole = layers
            count = _enough(whole, config)
            parent.register_module(name, torch.nn.ModuleList(list(whole)[:count]))
            for setting, value in (("layer_types", slice(count)), ("num_hidden_layers", count)):
                if (there := getattr(config, setting, None)) is not None:
                    before[setting] = there
                    setattr(config, setting, there[value] if isinstance(value, slice) else value)
        yield
    finally:
        if layers is not None:
            layers[0].register_module(layers[1], layers[2])
        for name, value in before.items():
            setattr(config, name, value)


def _layers(model: Model) -> tuple[torch.nn.Module, str, torch.nn.ModuleList] | None:
    """Returns the module that has the list of a network's layers, the list's name there, and the list."""
    for parent in model.net.modules():
        for name, child in parent.named_children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == model.config.num_hidden_layers:
                return parent, name, child
    return None


def _enough(layers: torch.nn.ModuleList, config: Any) -> int:
    """Returns the number of first layers that have one of each kind, at least two."""
    kinds = getattr(config, "layer_types", None) or [""] * len(layers)
    shapes = [
        (kind, tuple((name, type(part).__name__) for name, part in layer.named_modules()))
        for kind, layer in zip(kinds, layers, strict=True)
    ]
    return max(2, *(shapes.index(shape) + 1 for shape in shapes))
