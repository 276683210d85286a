"""Comparison of group selection by variance and by signal, on groups whose true values are known.

At twelve nodes the decision has no effect: every alternative succeeds half the time. At twelve nodes it has
an effect, with success rates around 0.25. A good rule selects the nodes with an effect.
"""

from __future__ import annotations

from random import Random
from statistics import fmean, variance
from typing import Any

from coterie.algorithms.selection import Choice, Rule, select
from coterie.bench import Say
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member

TRIALS, COINS, DECISIONS, ALTERNATIVES, TOP_K = 1500, 12, 12, 4, 5
CONTINUATIONS = (1, 2, 4, 8)
RULES: tuple[Rule, ...] = ("raw_var", "signal", "random_live")


def run(say: Say) -> dict[str, Any]:
    """Returns the mean true variance of the chosen groups' values, by rule and continuations."""
    rng = Random(0)
    chosen: dict[str, list[float]] = {}
    for trial in range(TRIALS):
        truths = [[0.5] * ALTERNATIVES for _ in range(COINS)]
        truths += [[min(1.0, max(0.0, rng.gauss(0.25, 0.2))) for _ in range(ALTERNATIVES)] for _ in range(DECISIONS)]
        worth = [variance(values) for values in truths]
        chosen.setdefault("oracle", []).append(fmean(sorted(worth)[-TOP_K:]))
        chosen.setdefault("any", []).append(fmean(worth))
        for continuations in CONTINUATIONS:
            names = rng.sample(range(len(truths)), len(truths))  # ties go by name
            groups = [_group(names[at], values, continuations, rng) for at, values in enumerate(truths)]
            known = dict(zip(names, worth, strict=True))
            for rule in RULES:
                if rule != "signal" or continuations > 1:  # one continuation has no variance of its own
                    selected = select(groups, Choice(rule, TOP_K), rng)
                    kept = [known[group.key.episode] for group in selected]
                    chosen.setdefault(f"{rule}, {continuations}", []).extend(kept)
        if (trial + 1) % 500 == 0:
            say(f"{trial + 1} of {TRIALS} trials")
    return {name: round(fmean(values), 4) for name, values in chosen.items()}


def _group(number: int, values: list[float], continuations: int, rng: Random) -> Group:
    members = tuple(
        Member(
            (Sample("a", "p", 0, (0,), (at,), (0.0,), "stop", str(at)),),
            tuple(float(rng.random() < value) for _ in range(continuations)),
        )
        for at, value in enumerate(values)
    )
    return Group(Key("t", number, f"{number}@0", "a"), "prompt", members, point=0)
