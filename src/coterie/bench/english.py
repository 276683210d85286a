"""Perplexity of plain English: shows whether training has harmed what a model could do before."""

from __future__ import annotations

import math

import torch

from coterie.learning.policy import Policy

TEXT = (
    "The village lies at the end of a long valley, where the road stops and the mountains begin. In winter the snow "
    "closes the pass for weeks, and people live on what they have stored in autumn: potatoes, cheese, apples and "
    "dried beans. When spring comes, the river rises and carries branches and stones down to the bridge, and "
    "everybody goes out to look at it. The school has two rooms and one teacher. She came from the city twelve "
    "years ago for a single winter, and she has stayed because the children asked her to. In the afternoon she "
    "teaches the older ones how to read maps and how to measure the height of a tree from its shadow. On Sundays "
    "the market fills the square. Farmers sell eggs and honey, the baker brings warm bread, and an old man repairs "
    "shoes while he tells stories about the sea, which he has seen only once. Most visitors arrive in July. They "
    "walk up to the lake before sunrise, sit on the stones and wait until the light touches the water. Then they "
    "are silent for a moment, and somebody opens a bottle of tea. Nobody hurries here, but the work gets done, "
    "because every neighbour knows what the others need."
)
"""Plain English that was written for this measurement."""


@torch.no_grad()
def perplexity(policy: Policy) -> float:
    """Returns exp of the mean negative log-probability of a token of TEXT, by a policy's weights as they are now."""
    ids = torch.tensor([policy.tokenizer.encode(TEXT)], device=policy.device)
    net = policy.model.net
    with torch.autocast(policy.device.type, dtype=policy.dtype, enabled=policy.dtype != torch.float32):
        logits = net(input_ids=ids, use_cache=False).logits[0, :-1].float()
    distribution = logits.log_softmax(dim=-1)
    return math.exp(-float(distribution.gather(-1, ids[0, 1:, None]).mean()))
