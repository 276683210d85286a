"""Copies of a network, and a digest of what a policy begins with."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from coterie.models.load import Model


def copied(
    net: PreTrainedModel,
    weight: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
    buffer: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
    instead: dict[int, Any] | None = None,
) -> PreTrainedModel:
    """Returns a network like another, whose tensors are made of that one's.

    Args:
        weight, buffer: what a weight becomes, and what does not count as one, such as the angles of RoPE.
        instead: what each tensor has become, by id; networks that share weights share them in copies that share it.
    """
    instead = {} if instead is None else instead
    for own in net.buffers():
        instead.setdefault(id(own), buffer(own))
    for own in net.parameters():
        if id(own) not in instead:
            instead[id(own)] = torch.nn.Parameter(weight(own.detach()), requires_grad=own.requires_grad)
    return copy.deepcopy(net, dict(instead))


def fingerprint(model: Model) -> str:
    """Returns a digest of weights and tokenizer: what a policy begins with, wherever it was loaded from."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.net.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.contiguous().cpu().flatten().view(torch.uint8).numpy())
    tokenizer = model.tokenizer
    backend = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    shape = model.net.config.to_json_string(), sorted(model.stop_ids), model.vocabulary, model.context
    digest.update(repr((backend, tokenizer.chat_template, shape)).encode())
    return digest.hexdigest()[:12]
