"""Run folders: what a run leaves on disk, and how it goes on as if it had never stopped.

Everything is written aside and renamed whole, so a partial file is never taken for a whole one.
A checkpoint lists its files with size and hash; one that does not match is refused by name.
There is no random state to save: every seed is derived (`seeds.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import SafetensorError

from coterie.config import Config, load_config
from coterie.cursor import Cursor
from coterie.environment import Split
from coterie.episode import LOGS, Log
from coterie.errors import CheckpointError
from coterie.group import Collected
from coterie.memory import Store

MANIFEST = "manifest.json"
EXACT = ("coterie", "torch", "transformers", "tokenizers")
"""Packages of which another version may compute something else."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one task of a saved rollout holds: where the task is found again, its groups and credit."""

    split: Split
    index: int
    collected: Collected
    advantages: tuple[tuple[float, ...], ...]


PLAYED: TypeAdapter[Played] = TypeAdapter(Played)


@dataclass(slots=True)
class Progress:
    """Where a run is: all that a checkpoint holds beside weights and optimizers.

    step: updates made. best_step, best_success: the checkpoint validation prefers. budget: tokens
    and calls so far. memory: what roles remember.
    """

    step: int = 0
    best_step: int = -1
    best_success: float = -1.0
    budget: dict[str, int] = field(default_factory=dict[str, int])
    memory: Store = field(default_factory=Store)


PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)


class Run:
    """A run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, config: Config) -> Run:
        """Makes the folder of a new run.

        Raises: CheckpointError: it exists, or cannot be written.
        """
        if folder.exists():
            raise CheckpointError(f"{folder} exists; choose another folder with --out, or go on with --resume {folder}")
        with _whole(folder, "choose another folder with --out"):
            folder.mkdir(parents=True)
        run = cls(folder)
        run._write("config.toml", f"# coterie train {folder / 'config.toml'}\n\n{config.toml()}")
        run._write("about.json", json.dumps(_about(config), indent=1))
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run. Raises: CheckpointError: this is not one."""
        if not (folder / "config.toml").is_file():
            raise CheckpointError(f"{folder} is not a run folder (config.toml is missing)")
        return cls(folder)

    @property
    def config(self) -> Config:
        """The resolved config."""
        return load_config(self.folder / "config.toml")

    def check_versions(self) -> None:
        """Raises CheckpointError: what computed this run so far is not what is installed now."""
        file = self.folder / "about.json"
        about = json.loads(file.read_text()) if file.exists() else {}
        for name, version in about.get("versions", {}).items():
            if name in EXACT and version != (here := metadata.version(name)):
                raise CheckpointError(
                    f"{self.folder} was run with {name} {version}, and {here} is installed: it cannot go on exactly; "
                    f"install {name}=={version}, or start a new run from its weights, in {self.folder}/checkpoints"
                )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run for this process. Raises: CheckpointError: another one has it."""
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CheckpointError(f"{self.folder} is in use by another process; wait for it, or stop it") from error
            yield

    def log(self, metrics: Mapping[str, float]) -> None:
        """Appends one step's line to metrics.jsonl."""
        with _whole(self.folder, self._go_on), (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(metrics) + "\n")

    def metrics(self) -> list[dict[str, float]]:
        """Every whole line of metrics.jsonl."""
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def save_episodes(self, step: int, played: Sequence[Played]) -> None:
        """Writes a step's rollout, a line a task."""
        lines = b"\n".join(PLAYED.dump_json(one) for one in played)
        self._write(f"episodes/step-{step:05d}.jsonl.gz", gzip.compress(lines, mtime=0))

    def episodes(self, step: int) -> list[Played]:
        """A saved rollout. Raises: CheckpointError: this step was not saved, or cannot be read."""
        file = self.folder / f"episodes/step-{step:05d}.jsonl.gz"
        saved = self.saved_episodes()
        if step not in saved:
            raise CheckpointError(f"{self.folder} has no episodes of step {step}; saved: {', '.join(map(str, saved))}")
        try:
            return [PLAYED.validate_json(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        except (OSError, EOFError, ValueError) as error:
            raise CheckpointError(f"{file} is damaged: {str(error).splitlines()[0]}") from error

    def saved_episodes(self) -> list[int]:
        """Steps whose rollout was saved, in order."""
        return sorted(int(file.name[5:10]) for file in (self.folder / "episodes").glob("step-*.jsonl.gz"))

    def save_bug(self, split: Split, index: int, log: Log) -> None:
        """Keeps what led to an exception out of `play`, for `replay_bug`."""
        self._write("bug.json", json.dumps([split, index, LOGS.dump_python(log, mode="json")]))

    def replay_bug(self) -> None:
        """Plays the episode that raised again, up to there, and raises. Raises: CheckpointError: there is none."""
        file = self.folder / "bug.json"
        if not file.exists():
            raise CheckpointError(f"{self.folder} has met no bug in play (bug.json is missing)")
        split, index, saved = json.loads(file.read_text())
        log, environment = LOGS.validate_python(saved), self.config.environment
        cursor = Cursor(environment, environment.task(split, index), log.seed, recorded=log.events)
        asyncio.run(cursor.advance())

    def checkpoint(self, step: int) -> Path:
        """The folder of a checkpoint, whether it exists or not."""
        return self.folder / f"checkpoints/step-{step:05d}"

    def checkpoints(self) -> list[int]:
        """Steps that have a checkpoint, in order."""
        return sorted(int(folder.name[5:]) for folder in (self.folder / "checkpoints").glob("step-*"))

    def save_checkpoint(self, progress: Progress, write: Any, keep: int) -> None:
        """Writes a checkpoint aside, renames it whole and removes those no longer kept.

        Args: write: called with the folder to fill. keep: how many of the latest stay, beside the start and the best.
        """
        folder = self.checkpoint(progress.step)
        aside = folder.with_name(f".{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        with _whole(folder, self._go_on, aside):
            aside.mkdir(parents=True)
            write(aside)
            (aside / "progress.json").write_bytes(PROGRESS.dump_json(progress))
            manifest = {str(file.relative_to(aside)): _fingerprint(file) for file in _files(aside)}
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
            for file in (*_files(aside), aside / MANIFEST, aside):
                _flush(file)
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
            _flush(folder.parent)
        for step in self.checkpoints()[:-keep]:
            if step not in (0, progress.best_step):
                shutil.rmtree(self.checkpoint(step))

    def read_checkpoint(self, step: int | None = None) -> tuple[Path, Progress]:
        """A checkpoint, verified file by file.

        Args: step: None: the latest.
        Raises: CheckpointError: there is none, or a file is missing, cut or changed.
        """
        steps = self.checkpoints()
        if not steps or (step is not None and step not in steps):
            there = f"there are {', '.join(map(str, steps))}" if steps else "it has none yet; start it anew"
            raise CheckpointError(
                f"{self.folder} has no checkpoint{'' if step is None else f' of step {step}'}; {there}"
            )
        folder = self.checkpoint(steps[-1] if step is None else step)
        other = [one for one in steps if self.checkpoint(one) != folder]
        advice = f"remove {folder} to go on from step {other[-1]}" if other else f"remove {self.folder} and start anew"
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            for name, fingerprint in manifest.items():
                if _fingerprint(folder / name) != fingerprint:
                    raise CheckpointError(f"{folder / name} is cut or changed; {advice}")
            return folder, PROGRESS.validate_json((folder / "progress.json").read_bytes())
        except FileNotFoundError as error:
            raise CheckpointError(f"{error.filename} is missing; {advice}") from error
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{folder} is damaged; {advice}") from error

    def best(self) -> int:
        """The step that validation prefers so far. Raises: CheckpointError: there is no checkpoint."""
        return self.read_checkpoint()[1].best_step

    def rewind(self, step: int) -> None:
        """Forgets what was written after a step: metrics lines and episodes."""
        lines = [json.dumps(line) for line in self.metrics() if line["step"] <= step]
        self._write("metrics.jsonl", "".join(f"{line}\n" for line in lines))
        for file in (self.folder / "episodes").glob("step-*.jsonl.gz"):
            if int(file.name[5:10]) > step:
                file.unlink()

    def _write(self, name: str, content: str | bytes) -> None:
        path = self.folder / name
        aside = path.with_name(f".{path.name}")
        with _whole(path, self._go_on, aside):
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            aside.rename(path)

    @property
    def _go_on(self) -> str:
        return f"make room and go on with: coterie train --resume {self.folder}"


def new_folder(environment: str) -> Path:
    """Where a run goes when nobody says: runs/DATE-TIME-ENVIRONMENT."""
    name = Path(environment.split(":", maxsplit=1)[0]).stem if ":" in environment else environment
    return Path("runs") / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{name}"


@contextlib.contextmanager
def _whole(path: Path, advice: str, aside: Path | None = None) -> Iterator[None]:
    """A write that fails is one line; what was written aside is removed."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # what torch and safetensors raise on a full disk
        if aside is not None and aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        elif aside is not None:
            aside.unlink(missing_ok=True)
        reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0]
        raise CheckpointError(f"{path} could not be written: {reason}; {advice}") from error


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fingerprint(file: Path) -> list[Any]:
    with file.open("rb") as handle:
        return [file.stat().st_size, hashlib.file_digest(handle, "sha256").hexdigest()]


def _about(config: Config) -> dict[str, Any]:
    packages = ("coterie", "torch", "transformers", "tokenizers", "pydantic", "numpy")
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git here: the commit is not known
        git = ""
    return {
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "system": platform.system()},
        "isolation": config.environment.isolation() or None,
        "seed": config.train.seed,
        "commit": git or None,
        "command": sys.argv,
    }
