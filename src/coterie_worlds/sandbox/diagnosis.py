"""The sandbox's part of `coterie doctor`."""

from __future__ import annotations

from coterie.errors import ConfigError
from coterie.kernel.diagnosis import Diagnosis
from coterie_worlds.sandbox import BACKENDS, Box, check, level


def diagnose() -> list[Diagnosis]:
    """Returns findings on the isolation of model-written code: a small program is run in each sandbox."""
    findings: list[Diagnosis] = []
    for backend in BACKENDS:
        try:
            check(Box(backend))
        except ConfigError as error:
            findings.append(Diagnosis("sandbox", backend, False, "cannot run", str(error)))
        else:
            how = level() if backend == "bubblewrap" else "no wall: a program has its user's files, processes, network"
            findings.append(Diagnosis("sandbox", backend, True, f"can run; {how}"))
    return findings
