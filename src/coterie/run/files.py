"""Files written aside and renamed whole: a partial file is never taken for a whole one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from coterie.bounded import opened
from coterie.errors import CheckpointError
from coterie.kernel.safe import command, one_line

MANIFEST = "manifest.json"
FAILED = "failed.txt"
"""File that says that a run ended in its first step, by an error of its own."""
STEP = re.compile(r"step-(\d{5,})")
"""Pattern of the names of checkpoints' folders and rollouts' files; other names there are somebody else's."""


def identity(file: int | Path) -> tuple[int, int, int]:
    """Returns a key that names a file in this process: a copy, a new file of its name and another process differ."""
    there = os.fstat(file) if isinstance(file, int) else file.stat()
    return os.getpid(), there.st_dev, there.st_ino


def write_whole(path: Path, content: str | bytes, advice: str) -> None:
    """Writes a file aside and renames it, so that it is whole or not there.

    Args:
        advice: what to do where it cannot be written.

    Raises:
        CheckpointError: it cannot.
    """
    aside = path.with_name(f".{path.name}")
    with whole(path, advice, aside):
        aside.unlink(missing_ok=True)  # what lies there may be a link to somebody's file
        with open(aside, "xb", opener=no_link) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)


def no_link(path: str, flags: int) -> int:
    """Opens a file of a run folder for writing, and refuses a link, which a stranger may have put there."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextlib.contextmanager
def whole(path: Path, advice: str, aside: Path | None = None) -> Iterator[None]:
    """Turns a failed write into an error of one line, and removes what was written aside, also if a signal ends it."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # what torch and safetensors raise on a full disk
        with contextlib.suppress(OSError):  # the folder may be gone, or a file may stand in its place
            _remove(aside)
        reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0]
        raise CheckpointError(
            f"{path} could not be written: {reason}; {'make room and ' if _is_full(error) else ''}{advice}"
        ) from error
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(aside)
        raise


def _remove(aside: Path | None) -> None:
    if aside is not None and aside.is_dir():
        shutil.rmtree(aside)
    elif aside is not None:
        aside.unlink(missing_ok=True)


def unread(error: OSError) -> str:
    """Returns the reason why a file could not be read, in words."""
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"


def _is_full(error: Exception) -> bool:
    """Returns True if there was no room; torch and safetensors say so in exceptions of their own."""
    return not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def resuming(folder: Path) -> str:
    """Returns the command that resumes a run."""
    return command("train", "--resume", folder)


def check_free(folder: Path) -> None:
    """Raises CheckpointError if a new folder cannot be made, or exists and is no run that failed in its first step."""
    try:
        there = folder.exists()
    except OSError as error:
        raise CheckpointError(f"{one_line(str(folder)):.80} cannot be a folder's name: {error.strerror}") from error
    if there and not (folder / FAILED).exists():
        go_on = ""
        if (folder / "config.toml").exists():
            begun = any(folder.glob("checkpoints/step-*"))
            none = "; it has no checkpoint, so if nothing is running there, remove it"
            go_on = f", or go on with: {resuming(folder)}" if begun else none
        raise CheckpointError(f"{folder} exists; choose another folder with --out{go_on}")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        reason = os.strerror(errno.EACCES if above.is_dir() else errno.ENOTDIR)
        raise CheckpointError(f"{folder} could not be written: {reason}; choose another folder with --out")


def set_aside(folder: Path) -> Path | None:
    """Renames the folder of a run that failed in its first step, and returns its new name; None if there is none."""
    if not (folder / FAILED).exists():
        return None
    names = (folder.with_name(f"{folder.name}-failed-{number}") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    with whole(folder, "choose another folder with --out"):
        folder.rename(aside)
    return aside


def steps_in(folder: Path, ending: str = "") -> dict[int, Path]:
    """Returns the files or folders in a folder that are named after a step, by its number."""
    steps = {STEP.fullmatch(path.name.removesuffix(ending)): path for path in folder.glob(f"step-*{ending}")}
    return {int(match[1]): path for match, path in steps.items() if match}


def files_in(folder: Path) -> list[Path]:
    """Returns every file of a checkpoint but its manifest, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def flush(path: Path) -> None:
    """Writes a file, or a folder's list of names, through to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fingerprint_of(file: Path) -> list[Any]:
    """Returns the size in bytes and the hash of a file."""
    with opened(file) as handle:
        return [os.fstat(handle.fileno()).st_size, hashlib.file_digest(handle, "sha256").hexdigest()]


def new_folder(environment: str) -> Path:
    """Returns the folder of a run for which none was named: runs/DATE-TIME-ENVIRONMENT."""
    name = Path(environment.split(":", maxsplit=1)[0]).stem if ":" in environment else environment
    return Path("runs") / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{name}"
