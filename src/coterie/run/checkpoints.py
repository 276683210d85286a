"""A run's checkpoints: written aside and renamed whole, read while the run goes on, and verified.

A checkpoint lists its files with size and hash; one that does not match is refused by name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from coterie.bounded import content, opened
from coterie.errors import CheckpointError
from coterie.models.files import OPTIMIZERS
from coterie.run.files import MANIFEST, files_in, fingerprint_of, flush, resuming, steps_in, unread, whole
from coterie.run.records import PROGRESS, Progress

LARGEST_PROGRESS = 256 << 20
"""Maximum size in bytes of a checkpoint's progress.json, with notes of roles, and of the list of its files."""
REPLACED = ".replaced-"
"""Prefix of a checkpoint's folder while another of the same step takes its place."""
PRUNED = ".pruned-"
"""Prefix of a checkpoint's folder while it is being removed."""
RETRIES = 20
"""Maximum number of times that a reader looks for a checkpoint while the run replaces it."""
Fingerprint = list[int | str]
"""A file's size and hash."""
MANIFESTS: TypeAdapter[dict[str, Fingerprint]] = TypeAdapter(dict[str, Fingerprint])


class Checkpoints:
    """Checkpoints of one run, in its folder `checkpoints`; `check` raises if the run's folder is no longer its own."""

    def __init__(self, folder: Path, check: Callable[[], None]) -> None:
        self.folder = folder
        self._check = check

    def path(self, step: int) -> Path:
        """Returns the folder of a step's checkpoint, whether it exists or not."""
        return self.folder / f"step-{step:05d}"

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in order."""
        return sorted(steps_in(self.folder))

    def goes_on(self, step: int) -> bool:
        """Returns True if a checkpoint has optimizers to go on with: an old best checkpoint keeps only its weights."""
        return (self.path(step) / OPTIMIZERS).exists()

    def check_goes_on(self, step: int) -> None:
        """Raises CheckpointError if a step's folder has no list of its files, or keeps no optimizers to go on with."""
        folder = self.path(step)
        if folder.exists() and not (folder / MANIFEST).exists():
            raise CheckpointError(f"{folder / MANIFEST} is missing; {self._other(folder)}")
        if folder.exists() and not self.goes_on(step):
            raise CheckpointError(
                f"{folder} keeps the weights of the best step, and no optimizer to go on with; put a later checkpoint "
                "back"
            )

    def save(self, progress: Progress, write: Any, keep: int) -> None:
        """Writes a checkpoint aside, renames it whole and removes those no longer kept.

        Args:
            write: called with the folder to fill.
            keep: how many of the latest stay, beside the start and the best.
        """
        folder = self.path(progress.step)
        aside = folder.with_name(f".{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        self._check()
        with whole(folder, f"go on with: {resuming(self.folder.parent)}", aside):
            aside.mkdir(parents=True)
            write(aside)
            (aside / "progress.json").write_bytes(PROGRESS.dump_json(progress))
            manifest = {str(file.relative_to(aside)): fingerprint_of(file) for file in files_in(aside)}
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
            self._share(aside, manifest)
            for file in (*files_in(aside), aside / MANIFEST, aside):
                flush(file)
            self._replace(folder, aside)  # one may have been saved before its validation
        for step in filter(None, self.steps()[:-keep]):
            if step == progress.best_step:
                self._lighten(self.path(step))
            elif not self._kept(step).exists():
                self._prune(self.path(step))

    def _lighten(self, folder: Path) -> None:
        """Removes the optimizers, two thirds of the size, of a checkpoint that no run goes on from."""
        aside = folder.with_name(f".{folder.name}")
        with contextlib.suppress(OSError, ValueError):  # it is damaged, or the disk is full or has no links: it stays
            shutil.rmtree(aside, ignore_errors=True)
            listed = MANIFESTS.validate_json(content(folder / MANIFEST, LARGEST_PROGRESS))
            kept = {name: mine for name, mine in listed.items() if not name.startswith(f"{OPTIMIZERS}/")}
            if kept == listed:
                return
            away = shutil.ignore_patterns(OPTIMIZERS, MANIFEST)
            shutil.copytree(folder, aside, copy_function=os.link, ignore=away)
            (aside / MANIFEST).write_text(json.dumps(kept, indent=1))
            for file in (aside / MANIFEST, aside):
                flush(file)
            self._replace(folder, aside)

    def _replace(self, folder: Path, aside: Path) -> None:
        """Puts a checkpoint in the place of another of its step; one of the two exists at any moment."""
        if folder.exists():
            folder.rename(folder.with_name(f"{REPLACED}{folder.name}"))
        aside.rename(folder)
        flush(folder.parent)
        for old in folder.parent.glob(f"{REPLACED}*"):
            self._prune(old)

    def _share(self, aside: Path, manifest: Mapping[str, Fingerprint]) -> None:
        """Links files that are as they were in the latest checkpoint to that one's, so that they take no room twice."""
        for before in map(self.path, self.steps()[-1:]):
            with contextlib.suppress(OSError, ValueError):  # a damaged one, or a disk that has no links
                listed = MANIFESTS.validate_json(content(before / MANIFEST, LARGEST_PROGRESS))
                for name in (name for name, mine in manifest.items() if listed.get(name) == mine):
                    if fingerprint_of(before / name) == manifest[name]:
                        other = aside / f".{MANIFEST}"
                        os.link(before / name, other)
                        other.rename(aside / name)

    def keep(self, step: int) -> None:
        """Marks a checkpoint to be kept for good: another run begins with it."""
        with contextlib.suppress(OSError):  # where nothing can be written, nothing is removed
            self._kept(step).touch()

    def _kept(self, step: int) -> Path:
        return self.folder / f"kept-{step:05d}"

    def recover(self) -> None:
        """Puts back a checkpoint that was being replaced when the run was killed, and ends removals begun before."""
        for old in filter(Path.is_dir, self.folder.glob(f"{PRUNED}*")):
            shutil.rmtree(old)
        for old in filter(Path.is_dir, self.folder.glob(f"{REPLACED}*")):
            home = old.with_name(old.name.removeprefix(REPLACED))
            if home.exists():
                shutil.rmtree(old)
            else:
                old.rename(home)

    def _prune(self, folder: Path) -> None:
        """Removes a checkpoint, unless somebody reads it just now: then the next save will."""
        with contextlib.suppress(BlockingIOError, FileNotFoundError), opened(folder / MANIFEST) as manifest:
            fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside = folder.with_name(f"{PRUNED}{folder.name}")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            shutil.rmtree(aside)

    @contextlib.contextmanager
    def reading(self, step: int | Literal["best", "latest"] = "latest") -> Iterator[tuple[Path, Progress]]:
        """Yields a checkpoint's folder and progress, verified, and keeps a run in training from removing it meanwhile.

        Args:
            step: its number, the latest, or what validation prefers so far.

        Raises:
            CheckpointError: there is none, or a file is missing, cut or changed.
        """
        for again in reversed(range(RETRIES)):
            wanted = step
            if wanted == "best":
                with self.reading() as (_, progress):
                    wanted = progress.best_step if progress.best_step >= 0 else "latest"
            steps = self.steps()
            if step == "best" and wanted != "latest" and wanted not in steps and again:
                continue  # the best of a moment ago: there is a better one
            folder = self.path(self._there(wanted, steps))
            try:
                manifest = opened(folder / MANIFEST)
            except OSError as error:
                if folder.exists():
                    raise CheckpointError(f"{folder / MANIFEST} {unread(error)}; {self._other(folder)}") from error
                continue  # replaced between two looks
            with manifest:
                fcntl.flock(manifest, fcntl.LOCK_SH)
                if folder.exists():
                    yield folder, self._verified(folder, manifest.read(LARGEST_PROGRESS))
                    return
        raise CheckpointError(f"{self.folder.parent} is being written too fast to be read; try again, or name a --step")

    def _there(self, step: int | str, steps: Sequence[int]) -> int:
        """Returns the number of a checkpoint that exists, or raises CheckpointError. steps: of those that do."""
        if step == "latest" and steps:
            return steps[-1]
        if step not in ("best", "latest") and not isinstance(step, int):
            raise CheckpointError(f"step = {step!r:.80} is no whole number")
        if step in steps:
            return int(step)
        none = "they are gone; put them back" if self.folder.exists() else "it has none yet; wait for its first"
        there = f"there are {', '.join(map(str, steps))}" if steps else none
        raise CheckpointError(
            f"{self.folder.parent} has no checkpoint{'' if step == 'latest' else f' of step {step}'}; {there}"
        )

    def _verified(self, folder: Path, manifest: bytes) -> Progress:
        try:
            listed = MANIFESTS.validate_json(manifest)
            there = {str(file.relative_to(folder)) for file in files_in(folder)}
            if "progress.json" not in listed or not there <= listed.keys():
                raise CheckpointError(f"{folder / MANIFEST} does not list its files; {self._other(folder)}")
            home = folder.resolve()
            for name, fingerprint in listed.items():
                real = (folder / name).resolve()
                if real != home / name or home not in real.parents:
                    raise CheckpointError(f"{folder / name} leads out of the checkpoint; {self._other(folder)}")
                if fingerprint_of(folder / name) != fingerprint:
                    raise CheckpointError(f"{folder / name} is cut or changed; {self._other(folder)}")
            return PROGRESS.validate_json(content(folder / "progress.json", LARGEST_PROGRESS))
        except CheckpointError:
            raise
        except OSError as error:
            raise CheckpointError(f"{error.filename or folder} {unread(error)}; {self._other(folder)}") from error
        except (ValueError, RuntimeError) as error:  # a link to itself is a RuntimeError
            raise CheckpointError(f"{folder} is damaged; {self._other(folder)}") from error

    def _other(self, folder: Path) -> str:
        """Returns advice about a damaged checkpoint. It never says to delete anything: a run may be writing there."""
        others = [step for step in self.steps() if self.path(step) != folder]
        if not others:
            return "put it back from a copy, or start a new run"
        look = f"use --step {others[-1]} to look at another"
        if not self.goes_on(others[-1]):
            return f"{look}, or put it back from a copy"
        away = shlex.join(["mv", str(folder), str(folder.with_name(f"damaged-{folder.name}"))])
        return f"{look}, or go on from step {others[-1]} after: {away}"
