"""The ledger of a cluster run: it records every sample and whether it was trained or dropped, exactly once.

Only the run's process writes `ledger.jsonl`, one line per event, and lines are never changed. `sent`: a share of a
step's tasks was sent to a worker, as an attempt. `done`: the attempt came back, with all its samples. `lost`: it did
not come back. `settled`: samples of a step were trained by a policy, or dropped, by reason. `began`: a process has
started or resumed the run after a number of steps, with a number of rollouts ahead. Earlier lines about later steps are
then void, and attempts that were under way are lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from coterie.bounded import opened
from coterie.errors import CheckpointError
from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample

FILE = "ledger.jsonl"
MOST_ODD = 1000
"""Maximum number of missing steps that are listed."""


class LedgerLine(NamedTuple):
    """A sample in the ledger. id: of its place and draw, the same whenever it is drawn again. engine: that drew it."""

    id: str
    task: str
    episode: int
    path: str
    role: str
    policy: str
    version: int
    engine: str
    tokens: int
    digest: str


def entries(request: Request, samples: Iterable[Sample], engine: str) -> Iterator[LedgerLine]:
    """Yields the ledger's entries of the samples that answer a request."""
    for sample in samples:
        told = struct.pack(f"{len(sample.completion_ids)}q", *sample.completion_ids)
        told += struct.pack(f"{len(sample.logprobs)}d", *sample.logprobs)
        digest = hashlib.sha256(told).hexdigest()[:12]
        yield LedgerLine(
            name_of(sample), *request.key, sample.policy, sample.version, engine, len(sample.completion_ids), digest
        )


def name_of(sample: Sample) -> str:
    """Returns the id of a sample: its seed, which is that of its place and draw."""
    return f"{sample.seed:016x}"


class Ledger:
    """A writer of a run's ledger. incarnation: the number of processes that had the run before."""

    def __init__(self, folder: Path, step: int, ahead: int) -> None:
        """Opens the ledger of a run that goes on after `step` steps, and plays `ahead` rollouts ahead."""
        file = folder / FILE
        before = list(read(folder)) if file.exists() else []
        self.incarnation = sum(line["at"] == "began" for line in before)
        if file.exists():  # a line that was cut is none
            whole = file.read_bytes()
            os.truncate(file, whole.rfind(b"\n") + 1)
        self._file = file.open("a", encoding="utf-8")
        self.write("began", step=step, incarnation=self.incarnation, ahead=ahead)

    def write(self, at: str, **event: Any) -> None:
        """Adds an event; it is on the disk when this returns."""
        self._file.write(json.dumps({"at": at, **event}, separators=(",", ":")) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of a run's ledger; a last line that was cut is left out.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    file = folder / FILE
    try:
        with opened(file) as reading:
            lines = reading.read().decode().split("\n")
    except OSError as error:
        raise CheckpointError(
            f"{folder} has no ledger ({FILE} is missing); a run keeps one where runtime.name = 'ray'"
        ) from error
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline was cut, or is nothing
        try:
            yield json.loads(line)
        except ValueError as error:
            raise CheckpointError(f"{file}:{number}: this line is damaged; put the file back from a copy") from error


@dataclass(slots=True)
class Balance:
    """Result of checking a ledger. odd: faults, in words; empty: every sample drawn has ended, and once.

    open: samples of steps that the run has not learned. ahead: how many steps may be played ahead.
    """

    steps: int = 0
    drawn: int = 0
    tokens: int = 0
    trained: Counter[str] = field(default_factory=Counter[str])
    dropped: Counter[str] = field(default_factory=Counter[str])
    engines: Counter[str] = field(default_factory=Counter[str])
    staleness: Counter[int] = field(default_factory=Counter[int])
    lost: Counter[str] = field(default_factory=Counter[str])
    incarnations: int = 0
    undone: int = 0
    open: int = 0
    ahead: int = 0
    odd: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        lines = [
            f"{self.drawn:,} samples were drawn in {self.steps} steps: {self.tokens:,} tokens; engines: "
            f"{len({engine.partition(' ')[0] for engine in self.engines})}",
            *(f"  {count:,} trained policy {name}" for name, count in sorted(self.trained.items())),
            *(f"  {count:,} were dropped: {reason}" for reason, count in sorted(self.dropped.items())),
            *(f"{count} shares of a rollout were lost and played again: {why}" for why, count in self.lost.items()),
        ]
        if set(self.staleness) - {0}:
            told = ", ".join(f"{count:,} by {updates}" for updates, count in sorted(self.staleness.items()))
            lines.append(f"training steps by which the weights that sampled were behind: {told}")
        if self.incarnations > 1:
            lines.append(f"{self.incarnations} processes have had the run; {self.undone} steps were undone")
        if self.open:
            lines.append(f"{self.open:,} more are of a step that the run has not learned")
        lines += self.odd or ["every sample has ended, and once"]
        return "\n".join(lines)


def audit(folder: Path, learned: int = 0) -> Balance:
    """Checks a run's ledger, and returns counts of its samples with all that is odd.

    Args:
        learned: steps that the run has learned, by what else it has written.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    told, steps, first = Balance(), dict[int, _Step](), learned
    for line in read(folder):
        try:
            if line["at"] == "began":
                first = min(first, line["step"])
            steps = _folded(line, steps, told)
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{folder / FILE}: an event lacks {error}; put the file back from a copy") from error
    there = {number for number, step in steps.items() if step.settled}
    last = max({learned, *(number + 1 for number in there)})
    missing = (number for number in range(first, last) if number not in there)
    for number in islice(missing, MOST_ODD):
        told.odd.append(f"step {number + 1} was learned, and what became of its samples is missing")
    if not told.incarnations:
        told.odd.append("nothing in it says that a run began")
    for number, step in sorted(steps.items()):
        step.count(number, told)
    return told


def _folded(line: Mapping[str, Any], steps: dict[int, _Step], told: Balance) -> dict[int, _Step]:
    """Returns the steps after one more event, which is counted in `told`."""
    if line["at"] == "began":
        told.incarnations += 1
        told.undone += sum(one.settled and step >= line["step"] for step, one in steps.items())
        told.ahead = line["ahead"]
        return {step: one for step, one in steps.items() if step < line["step"] and one.settled}
    if line["at"] not in ("sent", "done", "lost", "settled"):
        told.odd.append(f"an event that is none: {line['at']!r:.40}")
        return steps
    step = steps.setdefault(line["step"], _Step())
    if line["at"] == "settled":
        step.settle(line, told)
    elif line["at"] == "sent":
        step.under_way[line["attempt"]] = line["tasks"]
    else:
        there = step.under_way.pop(line["attempt"], None) is not None
        if not there:
            what = "came back" if line["at"] == "done" else "was lost"
            told.odd.append(f"step {line['step'] + 1}: attempt {line['attempt']} {what} and was not under way")
        if line["at"] == "lost":
            told.lost[line["reason"]] += 1
        elif there:
            step.come([LedgerLine(*entry) for entry in line["samples"]], line["step"], told)
    return steps


@dataclass(slots=True)
class _Step:
    """Events of one step, collected while a ledger is read."""

    under_way: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    drawn: dict[str, LedgerLine] = field(default_factory=dict[str, LedgerLine])
    trained: dict[str, str] = field(default_factory=dict[str, str])
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    settled: bool = False
    ahead: int = 0

    def come(self, samples: list[LedgerLine], step: int, told: Balance) -> None:
        """Adds the samples of an attempt that came back."""
        for entry in samples:
            if entry.id in self.drawn:
                told.odd.append(f"step {step + 1}: sample {entry.id} of task {entry.task} was drawn twice")
            self.drawn[entry.id] = entry

    def settle(self, line: Mapping[str, Any], told: Balance) -> None:
        """Notes which samples were trained, and which were dropped and why."""
        if self.settled:
            told.odd.append(f"step {line['step'] + 1} was settled twice")
        for attempt in self.under_way:
            told.odd.append(f"step {line['step'] + 1} was settled without what attempt {attempt} has drawn")
        self.settled, self.ahead = True, told.ahead
        for policy, ids in line["trained"].items():
            for each in ids:
                if each in self.trained:
                    told.odd.append(f"step {line['step'] + 1}: sample {each} was trained twice")
                self.trained[each] = policy
        for reason, ids in line["dropped"].items():
            for each in ids:
                if each in self.dropped:
                    told.odd.append(f"step {line['step'] + 1}: sample {each} was dropped twice")
                self.dropped[each] = reason

    def count(self, number: int, told: Balance) -> None:
        """Adds a step's counts and faults to the audit."""
        if not self.settled:  # of a run that goes on, or was killed
            told.open += len(self.drawn)
            return
        told.steps += 1
        told.drawn += len(self.drawn)
        told.tokens += sum(entry.tokens for entry in self.drawn.values())
        told.engines.update(entry.engine for entry in self.drawn.values())
        told.trained.update(self.trained.values())
        told.dropped.update(self.dropped.values())
        told.staleness.update(number - self.drawn[each].version for each in self.trained if each in self.drawn)
        for each in self.trained:
            if each in self.drawn and not 0 <= number - self.drawn[each].version <= self.ahead:
                told.odd.append(
                    f"step {number + 1}: sample {each} is of the weights after step {self.drawn[each].version}"
                )
        for each in self.trained.keys() & self.dropped.keys():
            told.odd.append(f"step {number + 1}: sample {each} was trained and dropped")
        for each in (self.trained.keys() | self.dropped.keys()) - self.drawn.keys():
            told.odd.append(f"step {number + 1}: sample {each} has ended and was never drawn")
        for each in self.drawn.keys() - self.trained.keys() - self.dropped.keys():
            told.odd.append(f"step {number + 1}: sample {each} was lost")
        for each, policy in self.trained.items():
            if each in self.drawn and self.drawn[each].policy != policy:
                told.odd.append(f"step {number + 1}: sample {each} of {self.drawn[each].policy} has trained {policy}")
