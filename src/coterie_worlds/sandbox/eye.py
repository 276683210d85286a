"""Records the values of the expressions of a watched program when they are evaluated: `see(site, value)`.

It runs inside the sandbox with the program, under a name that the program cannot know. It reports only the values of
the program's own expressions. Code outside interprets them, see `cooperation/`.
"""

from __future__ import annotations

from coterie_worlds.sandbox.plain import NotPlain, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCALARS = (type(None), bool, int, float, str)
COPIED = (list, tuple, dict, set, frozenset)
LONGEST = 1000
"""Maximum number of items, or characters, of a value that is noted."""
MOST_COPIED = 100_000
"""Maximum number of items that are copied in one call."""
UNSEEN = object
"""A stand-in for a value that is not noted."""


class Eye:
    """Notes of a call: for each site the first and the last value, whether any differed, and how many there were."""

    def __init__(self) -> None:
        self.forced: dict[int, Any] = {}
        self.sites: dict[int, list[Any]] = {}
        self.left = MOST_COPIED

    def see(self, site: int, value: Any) -> Any:
        """Notes a value, and returns it, or the one that the site is forced to."""
        if site in self.forced:
            value = self.forced[site]
        seen = self.copied(value)
        known = self.sites.get(site)
        if known is None:
            self.sites[site] = [seen, seen, type(value) not in SCALARS, 1]
        else:
            known[2] = known[2] or type(seen) is not type(known[1]) or seen != known[1]
            known[1] = seen
            known[3] += 1
        return value

    def copied(self, value: Any) -> Any:
        """Returns a copy of a value, if it is plain and small; else UNSEEN."""
        kind = type(value)
        if kind in SCALARS:
            return value if kind is not str or len(value) <= LONGEST else UNSEEN
        if kind in COPIED and len(value) <= min(LONGEST, self.left):
            self.left -= len(value) + 1
            return kind(value)
        return UNSEEN

    def report(self, forced: dict[str, Any]) -> dict[str, Any]:
        """Returns the notes since the last report, and begins anew. forced: values of sites from here on."""
        sites: list[list[Any]] = []
        for site, (first, last, varied, count) in self.sites.items():
            try:
                ends = [encode(first), encode(last)]
            except NotPlain:
                ends = [encode(UNSEEN)] * 2
            sites.append([site, varied, count, *ends])
        self.sites, self.left = {}, MOST_COPIED
        self.forced = {int(site): value for site, value in forced.items()}
        return {"status": "seen", "sites": sites}
