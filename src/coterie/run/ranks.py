"""The learner with `train.ranks` above 1: separate processes, each with a shard of every trained weight.

The run's process keeps whole weights for sampling. It sends experience to the ranks and receives the updated weights.
The ranks end with the run's process, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from safetensors.torch import load_file, save

from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.errors import ConfigError, CoterieError, UpdateError
from coterie.kernel.team import Graded
from coterie.learning.batch import Learned
from coterie.learning.learner import LocalLearner
from coterie.learning.policy import Policy
from coterie.learning.ranks import Ranks
from coterie.run.lookout import Lookout
from coterie.run.policies import Policies, pick_device

TIMEOUT_S = 300.0
"""Seconds that a rank waits for another."""
END_S = 10.0
"""Seconds that a rank may take to end."""
Answer = tuple[Literal["done", "refused", "failed"], Any]
"""A rank's answer to a call: a result, an exception that all ranks raise alike and survive, or one that ends it."""


@dataclass(frozen=True, slots=True)
class RankStart:
    """Facts that a rank is told before it begins.

    config: TOML of the run. policies: those it learns. meet: where the ranks meet, as torch.distributed has it.
    checkpoint: what they go on from.
    """

    config: str
    policies: tuple[str, ...]
    rank: int
    size: int
    meet: str
    device: str
    checkpoint: Path | None


class RankedLearner:
    """A learner that trains policies in several processes, and keeps the weights that it was given up to date.

    Args:
        policies: those that learn, whole, as the run samples from them.
        checkpoint: go on from it.

    Raises:
        ConfigError: there are fewer GPUs than ranks, or a model is not there.
    """

    def __init__(self, config: Config, policies: Mapping[str, Policy], checkpoint: Path | None = None) -> None:
        self.policies = dict(policies)
        self._size = config.train.ranks
        device = pick_device(config.train.device)
        if device == "cuda" and torch.cuda.device_count() < self._size:
            raise ConfigError(
                f"train.ranks = {self._size}, but there are {torch.cuda.device_count()} GPUs here; a rank has one of "
                "its own"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="coterie-ranks-")
        if checkpoint:
            for name, policy in self.policies.items():
                policy.model.take(checkpoint / "policies" / name)
        meet = f"file://{self._folder.name}/store"
        place = RankStart(config.toml(), config.team.trained, 0, self._size, meet, device, checkpoint)
        self._ranks = [_Rank(replace(place, rank=rank)) for rank in range(self._size)]
        by_name = {f"rank {rank.number} of the learner": rank for rank in self._ranks}
        self._lookout = Lookout(list(by_name), lambda name: by_name[name].heard(), _killed)
        self._lookout.open()
        self._answers()

    def update(self, experience: Mapping[str, Sequence[Graded]], step: int, spent: float = 0.0) -> dict[str, Learned]:
        """Makes one rollout's optimizer steps, for every policy that has experience.

        Raises:
            CoterieError: as a learner alone raises it.
            UpdateError: a rank has ended.
        """
        learned = self._asked("update", experience, step, spent)
        for name in learned:
            file = Path(self._folder.name) / f"{name}.safetensors"
            self._asked("write", name, file)
            self.policies[name].model.put(load_file(file))
            file.unlink()
        return learned

    def weights(self, name: str) -> Mapping[str, torch.Tensor]:
        """Returns a policy's weights as a checkpoint keeps them: whole, under the names that its model gives them."""
        return self.policies[name].model.weights()

    def save(self, folder: Path) -> None:
        """Writes the state of every policy's optimizer to FOLDER/optimizers, each rank its part."""
        self._asked("save", folder)

    def close(self) -> None:
        """Ends the ranks."""
        self._lookout.close()
        for rank in self._ranks:
            rank.connection.close()
        for rank in self._ranks:
            rank.end()
        self._folder.cleanup()

    def _asked(self, method: str, *args: Any) -> Any:
        """Calls a method of all ranks, and returns the first rank's result once all have answered."""
        for rank in self._ranks:
            rank.send((method, args))
        return self._answers()

    def _answers(self) -> Any:
        """Waits for all ranks, and returns the first rank's result.

        Raises:
            CoterieError: what all of them refuse alike; they go on.
            Exception: what one of them failed by; all of them are ended, for they would wait for each other.
        """
        waiting = {rank.connection: rank for rank in self._ranks}
        answers: dict[int, Answer] = {}
        while waiting:
            for ready in wait(list(waiting)):
                rank = waiting.pop(ready)  # pyright: ignore[reportArgumentType]
                answer = answers[rank.number] = rank.answer()
                if answer[0] == "failed":
                    for each in self._ranks:
                        each.kill()
                    self.close()
                    raise answer[1]
        kind, value = answers[0]
        if kind == "refused":
            raise value
        return value


class _Rank:
    """A rank's process, as the run's process sees it."""

    def __init__(self, place: RankStart) -> None:
        ours, theirs = socket.socketpair()
        self.number = place.rank
        self._looks = 0
        self.connection = Connection(ours.detach())
        threads = max(1, torch.get_num_threads() // place.size)
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from coterie.run.ranks import serve; serve({theirs.fileno()})"],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # a signal at the keyboard is the run's to answer
        )
        theirs.close()
        self.send(place)

    def send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # it has ended, and its answer says so
            self.connection.send(message)

    def answer(self) -> Answer:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            code = self.end()
            message = f"rank {self.number} of the learner has ended, with exit code {code}; go on with --resume"
            return "failed", UpdateError(message, untouched=False)

    def heard(self) -> str:
        """Returns the process's id and a number that stands still while it is stopped: what else hangs, others tell."""
        self._looks += psutil.Process(self._process.pid).status() != psutil.STATUS_STOPPED
        return f"{self._process.pid} {self._looks}"

    def end(self) -> int:
        """Waits for the process to end, kills it if that takes too long, and returns its exit code."""
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def kill(self) -> None:
        self._process.kill()


def _killed(heard: str) -> None:
    os.kill(int(heard.split(maxsplit=1)[0]), signal.SIGKILL)


def serve(handle: int) -> None:
    """Runs a rank: it learns what it is told to, until the run's process has gone.

    Args:
        handle: of the socket to the run's process.
    """
    connection = Connection(handle)
    from coterie.learning.fsdp import Sharded  # torch.distributed takes a second to load

    place: RankStart = connection.recv()
    with contextlib.suppress(EOFError):
        try:
            if place.device == "cuda":
                torch.cuda.set_device(place.rank)
            ranks = Sharded(place.rank, place.size, place.meet, device=place.device, timeout_s=TIMEOUT_S)
            learner = learner_of(place, ranks)
            connection.send(("done", None))
            while True:
                method, args = connection.recv()
                connection.send(answer(learner, ranks, method, args))
        except Exception as error:
            if isinstance(error, EOFError):
                raise
            connection.send(("failed", sendable(error)))
    os._exit(0)  # gloo's threads abort a process that waits for them


def learner_of(place: RankStart, ranks: Ranks) -> LocalLearner:
    """Returns the learner of a rank."""
    config = load_config(tomllib.loads(place.config))
    device = f"cuda:{torch.cuda.current_device()}" if place.device == "cuda" else place.device
    config = replace(config, train=config.train.model_copy(update={"device": device}))
    make, train = Policies(config).make, config.train
    policies = {name: make(name, config.policies[name]) for name in place.policies}
    return LocalLearner(
        policies, config.loss, train.steps, seed=train.seed, max_mismatch=train.max_mismatch,
        checkpoint=place.checkpoint, ranks=ranks,
    )  # fmt: skip


def answer(learner: LocalLearner, ranks: Ranks, method: str, args: tuple[Any, ...]) -> Answer:
    """Returns a rank's answer to a call: of a method of its learner, or of its weights, written or packed."""
    try:
        if method == "write":
            name, file = args
            weights = learner.weights(name)
            if ranks.rank == 0:
                Path(file).write_bytes(packed(weights))
            return "done", None
        if method == "packed":
            weights = learner.weights(*args)
            return "done", packed(weights) if ranks.rank == 0 else None
        return "done", getattr(learner, method)(*args)
    except CoterieError as error:
        return "refused", error


def packed(weights: Mapping[str, torch.Tensor]) -> bytes:
    """Returns weights as bytes in the format of safetensors."""
    return save({name: weight.detach().cpu().clone().contiguous() for name, weight in weights.items()})


def sendable(error: BaseException) -> BaseException:
    """Returns an exception that says the same in another process."""
    with contextlib.suppress(Exception):
        if isinstance(error, CoterieError) or type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301 our own
            return error
    return RuntimeError("".join(traceback.format_exception(error)))
