"""What tests read off run folders, and how they kill a run."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from coterie.errors import Unavailable
from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import Sample
from coterie.kernel.loops import drive
from coterie.run.folder import Run


def answered(engine: Engine, wave: Sequence[Request]) -> list[tuple[Sample, ...]]:
    """What an engine gives, where it answers everything."""
    given = drive(engine.generate(wave))
    return [samples for samples in given if not isinstance(samples, Unavailable)]


def untimed(folder: Path) -> list[dict]:
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")} for line in Run(folder).metrics()
    ]


def weights(folder: Path, step: int) -> dict[str, bytes]:
    checkpoint = Run(folder).checkpoints.path(step)
    return {str(file.relative_to(checkpoint)): file.read_bytes() for file in checkpoint.rglob("*.safetensors")}


def cut_back(folder: Path, step: int) -> None:
    """As if the run had been killed: later checkpoints are gone, later lines and episodes are there."""
    for later in Run(folder).checkpoints.steps():
        if later > step:
            shutil.rmtree(Run(folder).checkpoints.path(later))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "half a li')
