"""The record of what `coterie doctor` finds, also by functions of installed packages (group `coterie.diagnoses`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Result for one thing that was looked at. advice: what to do, where it is not ok."""

    area: str
    name: str
    ok: bool
    text: str
    advice: str = ""
