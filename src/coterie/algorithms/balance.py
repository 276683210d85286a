"""Balance: groups of a role weighed so that each kind of case counts the same, as class weights do in classification.

A checker that is mostly shown wrong answers learns to reject before it learns to look: nearly every group tells it the
same. An environment tells the kinds apart by the name of a local reward, NAME/CASE, such as verdict/right and
verdict/wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from coterie.kernel.group import Group, flat

MOST = 8.0
"""Maximum weight: a case that is met once in a while is noise."""


def balanced(groups: Sequence[Group]) -> list[Group]:
    """Returns groups with weights by which the live ones of each case of a role's reward weigh the same together.

    Of the n live groups of a role whose returns differ by NAME/…, in C cases, one of a case with n_c of them weighs
    n / (C n_c), at most `MOST`. Others keep their weight, and so do all where there is one case.

    Source:
        Ours; the weights are those of King and Zeng, "Logistic Regression in Rare Events Data" (2001), for classes.
    """
    cases: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, group in enumerate(groups):
        for name, case in _cases(group) if group.live else ():
            cases[group.key.role, name][case].append(place)
    weights = [group.weight for group in groups]
    for found in cases.values():
        live = sum(map(len, found.values()))
        for places in found.values():
            for place in places:
                weights[place] *= min(MOST, live / (len(found) * len(places)))
    return [replace(group, weight=weight) for group, weight in zip(groups, weights, strict=True)]


def _cases(group: Group) -> set[tuple[str, str]]:
    """Returns the names and cases of the local rewards by which a group's members differ."""
    names = {name for member in group.members for name in member.parts if "/" in name}
    differing = (name for name in names if not flat([member.parts.get(name, 0.0) for member in group.members]))
    return {(first, case) for first, _, case in (name.partition("/") for name in differing) if first != "team"}
