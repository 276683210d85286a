"""Seeds: every random number comes from a seed that is a hash of a key. The key says where it is drawn.

Only `seed_of` turns keys into seeds. So a single episode, sample or shuffle can be reproduced on its own, and
a run has no random state to save.
"""

from __future__ import annotations

import hashlib


def seed_of(*key: object) -> int:
    """Returns a 64-bit seed for a key: equal keys give equal seeds, in every process and on every machine.

    Args:
        key: strings, integers, floats, None and tuples of these. Values of different types or at different positions
            give different keys.
    """
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")
