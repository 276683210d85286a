"""Chooses the number of compute threads, by measurements during a run.

Threads of a math library wait for each other by spinning. This is fastest if each has its own core. If another process
uses one of the cores, each wait lasts until the system returns the core, and two threads are several times slower than
one. So a few small matrix products are timed every few seconds, with one thread and with all. This is done only for
small networks on a CPU, and only if a test shows that the number of threads does not change any bit of the results.

Engine and learner compute in turns, each in a thread with its own helper threads. If there are more helpers than cores,
all of them are put to sleep after every product, also the active ones. So engine and learner end their helpers when
they finish.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")

EVERY_S = 5.0
"""Seconds between two measurements."""
WORTH = 1.1
"""Factor by which all threads must be faster than one to be taken."""
SMALL = 50_000_000
"""Number of parameters above which a network has a machine of its own."""
TOKENS = (*range(1, 17), 64, 1024)
"""Rows of the products that are tried: Intel's library takes other ways where there are few."""
PRODUCTS, ROUNDS = 5, 3
DOUBT = 5
"""Factor of more rounds before fewer threads are taken: a short measurement errs where others share the machine."""

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
"""Products of Intel's library are the same with any number of threads; it reads this at a process's first product."""


class Threads:
    """The number of threads for some networks; what computes with them does so while it is `settled`.

    Whoever makes this has loaded the networks, and is left without helpers too.

    Args:
        nets: that are computed with.
        seconds: what a measurement takes with so many threads.
    """

    def __init__(self, nets: Sequence[torch.nn.Module], seconds: Callable[[int], float] | None = None) -> None:
        self.most = torch.get_num_threads()
        self._nets = nets
        self._seconds = seconds or _seconds
        self._at = -EVERY_S
        self._count_set = False
        self._count = self.most
        end_helpers()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Has the thread that enters compute with the chosen number of threads, and leaves it without helpers."""
        self.settle()
        try:
            yield
        finally:
            end_helpers()

    @cached_property
    def adapts(self) -> bool:
        """True if the number of threads is ours to set: it changes no bit of what these networks compute."""
        return self.most > 1 and all(_may(net) for net in self._nets)

    def settle(self) -> None:
        """Sets the number of threads for the thread that calls, measured anew where the last time is long ago."""
        if not self.adapts:
            return
        if time.monotonic() - self._at >= EVERY_S:
            before, self._count = self._count, self._measured(ROUNDS)
            if self._count < before:
                self._count = self._measured(DOUBT * ROUNDS)
            self._at = time.monotonic()
        self._count_set = True
        torch.set_num_threads(self._count)

    def beside(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Runs works that have nothing in common side by side, each with its part of the threads; returns the results.

        Small products gain more from that than from more threads. One after the other where the count is not ours to
        set. Where some fail, the first's error is raised when all are done.
        """
        workers = min(len(works), self._count if self.adapts else 1)
        if workers < 2:
            return [work() for work in works]
        begin = partial(torch.set_num_threads, self._count // workers)
        try:
            with ThreadPoolExecutor(workers, initializer=begin) as pool:
                done = [pool.submit(self._alone, work) for work in works]
            return [one.result() for one in done]
        finally:
            torch.set_num_threads(self._count)

    @staticmethod
    def _alone(work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            end_helpers()

    def _measured(self, rounds: int) -> int:
        one, every = (sum(self._seconds(count) for _ in range(rounds)) for count in (1, self.most))
        return self.most if WORTH * every < one else 1

    def restore(self) -> None:
        """Sets the number of threads as it was, if it was set here."""
        if self._count_set:
            torch.set_num_threads(self.most)


def end_helpers() -> None:
    """Ends the threads that have helped this one with its products; the next product begins them anew.

    OpenMP 5.0's `omp_pause_resource_all`, of the GNU library that PyTorch's wheels for Linux compute with. Elsewhere
    nothing happens, and nothing is needed for the numbers to be the same.
    """
    for pause in _pauses():
        pause(1)  # softly: what it was told stays


@cache
def _pauses() -> list[Callable[[int], int]]:
    with suppress(OSError, AttributeError):  # no Linux; a library from before OpenMP 5.0
        lines = Path("/proc/self/maps").read_text().splitlines()
        files = {line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line}
        return [ctypes.CDLL(file).omp_pause_resource_all for file in sorted(files)]
    return []


def _seconds(count: int) -> float:
    torch.set_num_threads(count)
    left, right = torch.ones(1024, 128), torch.ones(128, 384)
    torch.mm(left, right)
    began = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(left, right)
    return time.perf_counter() - began


def _may(net: torch.nn.Module) -> bool:
    """Returns True if a network is small, and its numbers do not depend on how many threads there are."""
    weights = list(net.parameters())
    config: Any = getattr(net, "config", None)
    keys = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", 2)
    if keys < 2:  # attention's backward pass of one row is then one piece, whose products take all threads
        return False
    if any(weight.device.type != "cpu" for weight in weights) or sum(weight.numel() for weight in weights) > SMALL:
        return False
    shapes = {tuple(weight.shape) for weight in weights if weight.ndim == 2}
    before = torch.get_num_threads()
    chance = torch.Generator().manual_seed(0)
    try:
        return all(_alike(before, shape, chance) for shape in sorted(shapes))
    finally:
        torch.set_num_threads(before)


def _alike(most: int, shape: tuple[int, ...], chance: torch.Generator) -> bool:
    """Returns True if a layer's products, forward and backward, and its gradient's norm are the same to the bit."""
    weight = torch.randn(shape, generator=chance)
    for tokens in TOKENS:
        states, pull = (torch.randn(tokens, size, generator=chance) for size in (shape[1], shape[0]))
        found: list[list[torch.Tensor]] = []
        for count in (1, most):
            torch.set_num_threads(count)
            gradient = pull.t() @ states
            found.append([states @ weight.t(), pull @ weight, gradient, torch.linalg.vector_norm(gradient)])
        if not all(torch.equal(one, other) for one, other in zip(*found, strict=True)):
            return False
    return True
