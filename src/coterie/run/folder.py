"""Run folders: what a run leaves on disk, and how it goes on as if it had never stopped.

Everything is written aside and renamed whole, so a partial file is never taken for a whole one.
There is no random state to save: every seed is derived (`seeds.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from coterie.bounded import TooMuch, content, unpacked
from coterie.config.resolve import resolve
from coterie.config.settings import Config, TrainConfig
from coterie.config.toml import LARGEST, ConfigSource, leaves, read
from coterie.engines.remote_config import LIMITS
from coterie.errors import CheckpointError, ConfigError, first_line
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Split
from coterie.kernel.episode import Log
from coterie.kernel.loops import drive
from coterie.kernel.mistakes import task_of
from coterie.kernel.safe import command, one_line, tell
from coterie.memory.store import MemoryConfig
from coterie.run import trust
from coterie.run.checkpoints import Checkpoints
from coterie.run.exactness import MENDS, circumstances
from coterie.run.files import FAILED, check_free, identity, no_link, resuming, steps_in, unread, whole, write_whole
from coterie.run.lines import checked_lines, with_points
from coterie.run.records import METRICS, PLAYED, About, Played

LARGEST_ROLLOUT, LARGEST_METRICS, LARGEST_JSON = 2 << 30, 256 << 20, 16 << 20
"""Maximum numbers of bytes of an unpacked rollout; of all lines of metrics, or of one episode; and of about.json."""
MOST_NAMES, MOST_FIGURES = 5_000, 10_000_000
"""Maximum numbers of different names of metrics, and of all figures of a run."""
BUGS: TypeAdapter[tuple[Split, int, Log]] = TypeAdapter(tuple[Split, int, Log])


MAY_CHANGE = re.compile(
    rf"train\.(steps|stop_when_solved|stop_dead_steps|ranks)|runtime\..*|trackers\..*|policies\.[^.]+\.remote\.({'|'.join(LIMITS)})"
)
"""Pattern of the settings that may change when a run goes on: they change nothing of what it has computed."""


class Run:
    """The folder of a run: its config, metrics, rollouts and checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = Checkpoints(folder / "checkpoints", self._check_there)
        self._held: tuple[int, int, int] | None = None
        """Identity of this process and of the lock's file, while it holds the lock."""
        self._logged = False

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @classmethod
    def create(cls, folder: Path, config: Config, exact: Mapping[str, str] | None = None) -> Run:
        """Makes the folder of a new run in one step, so that every run that has a folder can go on.

        Args:
            exact: what exactness rests on beside the versions, by name.

        Raises:
            CheckpointError: it exists, or cannot be written.
        """
        check_free(folder)
        aside = folder.with_name(f".{folder.name}-{os.getpid()}")
        with whole(folder, "choose another folder with --out", aside):
            aside.mkdir(0o700, parents=True)  # what models were asked and said may be nobody else's business
            (aside / "config.toml").write_text(text := _whole_config(config, folder), encoding="utf-8")
            (aside / "about.json").write_text(json.dumps(circumstances(config, exact or {}), indent=1))
            trust.sign(aside, text, folder)
            aside.rename(folder)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Opens the folder of an existing run.

        Raises:
            CheckpointError: there is none.
        """
        if folder.is_file():
            raise CheckpointError(f"{folder} is a file; name the folder of a run")
        if not (folder / "config.toml").is_file():
            raise CheckpointError(f"{folder} is not a run folder (config.toml is missing)")
        return cls(folder)

    @property
    def tables(self) -> dict[str, Any]:
        """Tables of the config as it is written. Nothing that it names is imported, so it may be anybody's.

        Raises:
            CheckpointError: it cannot be read.
        """
        return self._read()[1].data

    def _read(self) -> tuple[bytes, ConfigSource]:
        """Returns the config as it is written, and its settings: read once, so that what is trusted is what is run."""
        try:
            written = content(self.folder / "config.toml", LARGEST)
            source = read(self.folder / "config.toml", written=written, own=True)
        except (OSError, TooMuch) as error:
            raise CheckpointError(
                f"{self.folder / 'config.toml'} cannot be read as TOML: {first_line(error)}"
            ) from error
        except ConfigError as error:
            raise CheckpointError(str(error)) from error
        tables = source.data
        wanted = ("environment", "algorithm", "team", "policies", "train")
        if missing := [table for table in wanted if not isinstance(tables.get(table), dict)]:
            raise CheckpointError(f"{self.folder / 'config.toml'} is damaged: [{missing[0]}] is missing; put it back")
        try:
            TrainConfig.model_validate(tables["train"])
            MemoryConfig.model_validate(tables.get("memory", {}))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise CheckpointError(
                f"{self.folder / 'config.toml'} is damaged: {where}: {error.errors()[0]['msg']}; put it back"
            ) from error
        return written, source

    @property
    def config(self) -> Config:
        """The resolved config, with the environment and whatever else it names.

        Raises:
            ConfigError: it is somebody else's run, and what it names was not trusted.
        """
        return self.config_with(())

    def config_with(self, overrides: Sequence[str]) -> Config:
        """Returns the resolved config with this user's overrides, as `load_config` takes them. Errors as `config`."""
        return resolve(self._trusted(overrides))

    def check_trusted(self) -> None:
        """Raises ConfigError if the run is somebody else's, and what it names was not trusted."""
        self._trusted()

    def _trusted(self, overrides: Sequence[str] = ()) -> ConfigSource:
        written, source = self._read()
        trust.check(self.folder, source.data, written)
        return read(self.folder / "config.toml", overrides, written, own=True) if overrides else source

    def check_exact(self, exact: Mapping[str, str], step: int, *, lines: int = 0, anyway: bool = False) -> None:
        """Refuses, or notes, a difference between what this run was computed with so far and what is here now.

        Args:
            exact: what is here, by name.
            step: where the run goes on.
            lines: of metrics, that there are up to there.
            anyway: a difference is written to about.json instead of refused.

        Raises:
            CheckpointError: something differs, or about.json is damaged.
        """
        about = self.about()
        differs = self.differences(exact)
        lost = sorted(set(range(lines)) - {line["step"] for line in self.metrics()})
        if not set(lost) <= set(about.get("lost_lines", ())):
            differs["metrics.jsonl"] = (f"{lines} lines", f"{lines - len(lost)}")
        if differs and not anyway:
            files = {name: f" ({called})" for name, called in self.config.names.items() if ".py:" in called}
            said = "; ".join(f"{name}{files.get(name, '')} {was}, here {now}" for name, (was, now) in differs.items())
            mends = ", ".join(dict.fromkeys(MENDS.get(name.split()[0], "") for name in differs))
            raise CheckpointError(
                f"{self.folder} cannot go on exactly: it was run with {said}; {mends}, or go on all the same, which "
                "the run then says of itself, with --anyway"
            )
        if differs:
            about["exact"], about["lost_lines"] = dict(exact), lost
            about.setdefault("went_on_anyway", []).append({"step": step, "differs": differs})
            self._write("about.json", json.dumps(about, indent=1))

    def differences(self, exact: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Returns what has changed of versions, settings and files since this run was computed: before, now, by name.

        Args:
            exact: what is here.
        """
        before = self.about()["exact"]
        told = {name: (before.get(name, "unknown"), exact.get(name, "unknown")) for name in {**before, **exact}}
        return {name: (was, now) for name, (was, now) in told.items() if was != now}

    def change(self, config: Config, step: int) -> None:
        """Gives the run other settings, of those that may change: another number of steps is noted in about.json."""
        before = self.config.train.steps
        if config.train.steps != before:
            about = self.about()
            about.setdefault("steps_changed", []).append({"step": step, "from": before, "to": config.train.steps})
            self._write("about.json", json.dumps(about, indent=1))
        mine, text = trust.is_mine(self.folder), _whole_config(config, self.folder)
        self._write("config.toml", text)
        if mine:
            trust.sign(self.folder, text)

    def steps_changed_at(self, step: int) -> bool:
        """Returns True if the run was given another number of steps when it had made `step` of them."""
        return any(change["step"] == step for change in self.about().get("steps_changed", ()))

    @property
    def failed_file(self) -> Path:
        """File that says that the run ended in its first step, by an error of its own."""
        return self.folder / FAILED

    def note_failure(self, error: Exception) -> None:
        """Notes the error that ended the run in its first step, so that its folder does not block the next try."""
        with contextlib.suppress(OSError), _appending(self.failed_file) as file:
            file.write(f"{one_line(f'{type(error).__name__}: {error}')}\n")

    def about(self) -> dict[str, Any]:
        """Returns the content of about.json.

        Raises:
            CheckpointError: it is missing or damaged.
        """
        file = self.folder / "about.json"
        try:
            return About.model_validate_json(content(file, LARGEST_JSON)).model_dump(exclude_unset=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{file} is missing or damaged; put it back, or start a new run from the weights in "
                f"{self.folder}/checkpoints"
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the run for this process while it is entered.

        Raises:
            CheckpointError: another one has it, it is read-only, or somebody else's whose folders lie elsewhere.
        """
        links = [name for name in ("checkpoints", "episodes") if (self.folder / name).is_symlink()]
        if links and not trust.is_mine(self.folder):
            raise CheckpointError(
                f"{self.folder / links[0]} is a link, and the run was not made by you: what it leads to would be "
                "written; copy the folder with what its links lead to"
            )
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(_appending(self.folder / "lock"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CheckpointError(f"{self.folder} is in use by another process; wait for it, or stop it") from error
            except OSError as error:
                raise CheckpointError(
                    f"{self.folder / 'lock'} cannot be written: {error.strerror}; make the folder writable, or copy it"
                ) from error
            self._held = identity(lock.fileno())
            try:
                yield
            finally:
                self._held = None

    def log(self, metrics: Mapping[str, float]) -> None:
        """Appends one step's line to metrics.jsonl."""
        self._check_there()
        there = self.folder / "metrics.jsonl"
        if self._logged and not there.exists():
            tell(f"{there} was removed while the run went on: what it said of the steps before this one is lost")
        self._logged = True
        with whole(there, self._go_on), _appending(there) as file:
            file.write(json.dumps(metrics) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, float]]:
        """Returns every whole line of metrics.jsonl.

        Raises:
            CheckpointError: one of them is damaged.
        """
        file = self.folder / "metrics.jsonl"
        try:
            lines = content(file, LARGEST_METRICS).splitlines(keepends=True) if file.exists() else []
        except OSError as error:
            raise CheckpointError(f"{file} {unread(error)}; put it back") from error
        except TooMuch as error:
            raise CheckpointError(f"{file} is refused: {error}, more than metrics have") from error
        kept: list[dict[str, float]] = []
        names, figures = set[str](), 0
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):  # the last line may be half written
                try:
                    kept.append(METRICS.validate_json(line))
                    if kept[-1]["step"] % 1 != 0:  # NaN and infinity too
                        raise ValueError("no step")
                    if not 0 <= kept[-1].get("validation/success", 0) <= 1:
                        raise ValueError("no share")
                    names |= kept[-1].keys()
                    figures += len(kept[-1])
                    if len(names) > MOST_NAMES or figures > MOST_FIGURES:
                        raise CheckpointError(
                            f"{file} is refused: it has more than {MOST_NAMES:,} names or {MOST_FIGURES:,} figures"
                        )
                except (ValueError, KeyError) as error:
                    raise CheckpointError(
                        f"{file}:{number} is damaged: it is no step's metrics; remove the line, or put the file back"
                    ) from error
        return kept

    def save_episodes(self, step: int, played: Sequence[Played]) -> None:
        """Writes a step's rollout, one task a line."""
        lines = b"\n".join(PLAYED.dump_json(episode) for episode in played)
        self._write(f"episodes/step-{step:05d}.jsonl.gz", gzip.compress(lines, mtime=0))

    def episodes(self, step: int) -> list[Played]:
        """Returns the saved rollout of a step.

        Raises:
            CheckpointError: this step was not saved, or cannot be read.
        """
        file = self.folder / f"episodes/step-{step:05d}.jsonl.gz"
        saved = self.saved_episodes()
        if step not in saved:
            raise CheckpointError(
                f"{self.folder} has no episodes of step {step}; saved: {', '.join(map(str, saved)) or 'none'}"
            )
        try:
            lines = checked_lines(unpacked(file, LARGEST_ROLLOUT), file.stat().st_size)
            return [with_points(PLAYED.validate_json(line)) for line in lines]
        except TooMuch as error:
            raise CheckpointError(f"{file} is refused: {error}, more than a rollout has") from error
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise CheckpointError(f"{file} is damaged: {str(error).splitlines()[0]}") from error

    def saved_episodes(self) -> list[int]:
        """Returns the steps whose rollout was saved, in order."""
        return sorted(steps_in(self.folder / "episodes", ".jsonl.gz"))

    def check_begun(self) -> None:
        """Raises CheckpointError if steps were made, and no checkpoint of them is left to go on from."""
        made = int(max((line["step"] for line in self.metrics()), default=0))
        if made and not self.checkpoints.steps():
            raise CheckpointError(
                f"{self.folder} has made {made} steps, and its checkpoints are gone; put them back, or start a new run"
            )

    def check_goes_on(self, config: Config) -> None:
        """Raises CheckpointError if the run was made with other settings, or has made more steps than are asked for."""
        theirs, ours = (dict(leaves(each.tables())) for each in (self.config, config))
        for key in sorted(
            {**theirs, **ours}, key=lambda key: not key.startswith("runtime.")
        ):  # others follow from these
            was, now = theirs.get(key), ours.get(key)
            if was != now and not MAY_CHANGE.fullmatch(key):
                raise CheckpointError(
                    f"{self.folder} was run with {key} = {was!r}, not {now!r}; a run continues with its own config. "
                    "Only train.steps, train.stop_when_solved, train.stop_dead_steps, train.ranks, [runtime], trackers "
                    "and servers' limits may change: leave the setting out, or start a new run"
                )
        made = max(self.checkpoints.steps(), default=0)
        self.checkpoints.check_goes_on(made)
        if config.train.steps < made:
            raise CheckpointError(
                f"train.steps = {config.train.steps}, but {self.folder} has made {made} already; set it higher"
            )

    def save_bug(self, split: Split, index: int, log: Log) -> None:
        """Saves the episode in which `play` raised, for `replay_bug`."""
        self._write("bug.json", BUGS.dump_json((split, index, log)))

    def replay_bug(self) -> None:
        """Replays the saved episode up to the point where `play` raised, and raises the same.

        Raises:
            CheckpointError: there is none.
        """
        file = self.folder / "bug.json"
        if not file.exists():
            raise CheckpointError(f"{self.folder} has met no bug in play (bug.json is missing)")
        try:
            split, index, log = BUGS.validate_json(content(file, LARGEST_METRICS))
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{file} is damaged: {str(error).splitlines()[0]}") from error
        environment = self.config.environment
        cursor = Cursor(environment, task_of(environment, split, index), log.seed, recorded=log.events)
        drive(cursor.advance())

    def rewind(self, step: int, *, lines: int) -> None:
        """Removes what was written after a step: its rollouts, and all lines of metrics but those of the first steps.

        Args:
            lines: of metrics that stay, from step 0.
        """
        about = self.about()
        if any(change["step"] > step for change in about.get("steps_changed", ())):
            for change in about["steps_changed"]:
                change["step"] = min(change["step"], step)  # what comes now is made under the new number
            self._write("about.json", json.dumps(about, indent=1))
        kept = [json.dumps(line) for line in self.metrics() if line["step"] < lines]
        self._write("metrics.jsonl", "".join(f"{line}\n" for line in kept))
        for number, file in steps_in(self.folder / "episodes", ".jsonl.gz").items():
            if number > step:
                file.unlink()

    def _write(self, name: str, content: str | bytes) -> None:
        self._check_there()
        with whole(self.folder / name, self._go_on):
            (self.folder / name).parent.mkdir(exist_ok=True)
        write_whole(self.folder / name, content, self._go_on)

    def _check_there(self) -> None:
        """Raises CheckpointError if the folder has been moved or removed: it is not made again, in pieces.

        Nor is another that stands in its place written to, or the same by a fork of the process that holds it.
        """
        with contextlib.suppress(OSError):
            if self.folder.is_dir() and (self._held is None or self._held == identity(self.folder / "lock")):
                return
        raise CheckpointError(
            f"{self.folder} is gone: it was moved, removed or replaced while the run went on, or play has changed the "
            f"working folder; move it back and {self._go_on}"
        )

    @property
    def resume_command(self) -> str:
        """Command that resumes this run."""
        return resuming(self.folder)

    @property
    def _go_on(self) -> str:
        return f"go on with: {self.resume_command}"


def _appending(file: Path) -> IO[str]:
    return open(file, "a", opener=no_link, encoding="utf-8")


def _whole_config(config: Config, folder: Path) -> str:
    """Returns a run's config as it is saved: with who set each value, unless it would be too long to be read."""
    head = f"# {one_line(command('train', folder / 'config.toml'))}\n\n"
    whole = head + config.explained()
    return whole if len(whole.encode()) <= LARGEST else head + config.toml()
