"""Validates the advantages that an algorithm returns before anything is trained, since the class may be a user's."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from typing import cast

from coterie.errors import GroupError
from coterie.kernel.algorithm import Algorithm, State
from coterie.kernel.group import Group


def credited(algorithm: Algorithm, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
    """Returns the advantages that an algorithm gives a step, and the state that it remembers, both checked.

    Raises:
        GroupError: there is not a finite advantage for each member, or the state is not plain data.
    """
    name = type(algorithm).__name__
    given: object = algorithm.credit(groups, copy.deepcopy(state))
    try:
        earned, after = cast("tuple[Sequence[Sequence[float]], State]", given)
        advantages = [tuple(map(float, numbers)) for numbers in earned]
    except (TypeError, ValueError) as error:
        raise GroupError(
            f"{name}.credit gives {given!r:.80}; return (a list of numbers for each group, state)"
        ) from error
    if len(advantages) != len(groups):
        raise GroupError(f"{name}.credit gives numbers for {len(advantages)} groups of {len(groups)}")
    for group, numbers in zip(groups, advantages, strict=True):
        if not all(map(math.isfinite, numbers)):
            raise GroupError(
                f"{name} credits group {'/'.join(map(str, group.key))} with {numbers}, which is not finite"
            )
    try:
        kept: object = json.loads(json.dumps(after, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        kept = None
    if not isinstance(after, dict) or kept != after:
        raise GroupError(
            f"{name}.credit remembers {after!r:.80}, which a checkpoint cannot keep; remember a table whose keys are "
            "strings, of finite numbers, strings, lists and such tables"
        )
    return advantages, after
