"""Two functions that are written apart and work as one: `aux`, and `main`, which may call it.

`reading.py` analyses their text. `evidence.py` tests whether main's result changes when aux's answers are replaced.
"""

from coterie_worlds.coding.cooperation.evidence import UNUSED, used
from coterie_worlds.coding.cooperation.reading import (
    AUX,
    Scheme,
    extracted,
    names_aux,
    parsed,
    read,
    returns,
    schemes,
)

__all__ = ["AUX", "UNUSED", "Scheme", "extracted", "names_aux", "parsed", "read", "returns", "schemes", "used"]
