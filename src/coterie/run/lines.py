"""Lines of saved rollouts: none that takes gigabytes to read, and those of earlier versions as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from coterie.bounded import TooMuch
from coterie.run.records import Played

MOST_VALUES, VALUES_A_BYTE = 2 << 20, 20
"""Values of a rollout that are always read, and those for each of its packed bytes: a million take 100 MB."""
FEW, SPARSE = 10_000, 8
"""Lists and objects of a line that are always read, and the bytes for each of which one more is: an empty list has two,
and takes a hundred times as many."""


def with_points(played: Played) -> Played:
    """Returns a task of a rollout with the points of its groups, which earlier versions kept in paths alone."""
    groups = tuple(
        replace(group, point=int(at[2].partition("#")[0]))
        if group.point is None and (at := group.key.path.rpartition("@"))[1]
        else group
        for group in played.collected.groups
    )
    return replace(played, collected=replace(played.collected, groups=groups))


def checked_lines(lines: Iterable[bytes], packed: int) -> Iterator[bytes]:
    """Yields lines of JSON.

    Args:
        packed: bytes of the file that holds them.

    Raises:
        TooMuch: they hold so many lists and objects, or so many values, that these take gigabytes.
    """
    values = 0
    for line in lines:
        values += line.count(b",")
        if line.count(b"[") + line.count(b"{") > max(FEW, len(line) // SPARSE):
            raise TooMuch("it holds hardly anything but lists and objects")
        if values > max(MOST_VALUES, VALUES_A_BYTE * packed):
            raise TooMuch(f"it holds more than {max(MOST_VALUES, VALUES_A_BYTE * packed):,} values")
        yield line
