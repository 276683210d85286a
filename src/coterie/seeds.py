"""Seeds: every number drawn by chance comes from a key that names where it is drawn.

`seed_of` is the one place where a key becomes a seed, so a single episode, sample or
shuffle can be drawn again alone, and a run has no random state to save.
"""

from __future__ import annotations

import hashlib


def seed_of(*key: object) -> int:
    """A 64-bit seed for a key: equal keys give equal seeds, in every process and on every machine.

    Args:
        key: strings, integers, floats, None and tuples of these; values of different types or at different positions
        give different keys.
    """
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")
