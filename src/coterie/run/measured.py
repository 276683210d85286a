"""Memory of the policies on one device, measured on tensors without data with the code that a run uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from coterie.checks.machines import Machine
from coterie.config.settings import Config
from coterie.engines.decoding import Costs, Decoder, budget_gib, leans
from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample
from coterie.kernel.mistakes import count_of
from coterie.kernel.team import Graded
from coterie.learning.batch import Pack, rows_of
from coterie.learning.learner import LocalLearner
from coterie.learning.policy import Policy
from coterie.models.lean import Bases, usual_layers
from coterie.models.memory import GIB
from coterie.models.meter import Meter, storage_of
from coterie.models.shapes import Shapes
from coterie.run.asked import Requests

T = TypeVar("T")
BUSY = 0.4
"""Share of a machine's best speed that networks of this kind reach."""
LAYER_S, GRAPH_S = 1e-3, 2.5e-4
"""Minimum seconds of a layer for a token of a whole batch, however little there is to compute: by its modules, and by a
graph on CUDA, as measured on an H200."""
BESIDE = 0.1
"""Memory that vLLM takes for a forward, as a share of the cache that it then sets aside."""
KNOWN: dict[str, object] = {}
"""Measurements of this process, by shape: a search for what would fit looks at plans that differ by little."""
KEPT = ("weights", "copy", "reference", "averages")
"""Kinds of memory that are taken all the time."""
KINDS = {
    "weights": "weights",
    "copy": "the engine's copy",
    "reference": "reference for KL",
    "averages": "AdamW's averages",
    "gradients": "gradients",
    "cache": "prompts, caches",
    "activations": "activations, logits",
    "gathered": "layers together",
}
"""Kinds of memory, and their names for users."""


@dataclass(frozen=True, slots=True)
class Share:
    """A policy's part of the memory and time of a device.

    parameters, trained: how many. memory: bytes by kind: weights; copy: the engine's, where it computes in another
    type; reference: of a KL term; gradients; averages: AdamW's two; cache: prompts, caches and logits of what is
    decoded at once; activations: with logits, of what is trained at once, the most of policies of one shape; gathered:
    of a rank, weights that are whole for a moment. rollout_s, update_s, validation_s, test_s: seconds of a step, a
    validation and a test at the end, roughly.
    """

    policy: str
    kind: str
    model: str
    parameters: int
    trained: int
    memory: Mapping[str, int]
    rollout_s: float
    update_s: float
    validation_s: float
    test_s: float

    def of(self, *kinds: str) -> int:
        """Returns the bytes of some kinds of memory."""
        return sum(self.memory.get(kind, 0) for kind in kinds)

    def with_times(self, sampling: float, learning: float, **changes: Any) -> Share:
        """Returns the share of a device that does only a part of the policy's sampling and of its learning."""
        return replace(
            self,
            rollout_s=self.rollout_s * sampling,
            validation_s=self.validation_s * sampling,
            test_s=self.test_s * sampling,
            update_s=self.update_s * learning,
            **changes,
        )


class Measured:
    """Measurements of the policies of one device."""

    def __init__(
        self,
        config: Config,
        policies: Mapping[str, Policy],
        shapes: Shapes,
        machine: Machine,
        process: int,
        asked: Requests,
    ) -> None:
        self.config = config
        self.policies = policies
        self.shapes = shapes
        self.machine = machine
        self.process = process
        self.asked = asked
        self.remarks: list[str] = []
        self._seen = set[int]()
        trained = {name: policy for name, policy in policies.items() if name in config.team.trained}
        with shapes.mode:
            self.learner = LocalLearner(trained, config.loss, config.train.steps)
            bases: Bases = {}
            for policy in policies.values():
                policy.model.lean = leans(policy.model.net, policy.dtype, machine.kind)
            self.decoders = {name: Decoder(policy, bases) for name, policy in policies.items()}
        self.fixed = {name: self._fixed(name) for name in policies}
        self.budget = self._budget()

    def _budget(self) -> float:
        """Returns the GiB for prompts and caches of what is decoded at once: as set, or as the engine chooses."""
        engine, machine, fixed = self.config.engine, self.machine, self.fixed.values()
        if set_to := getattr(engine, "memory_gib", None):
            return set_to
        apart = self.config.runtime.name == "ray" and machine.kind == "cuda"  # what learns is on other devices
        sampling = [memory["copy"] or memory["weights"] for memory in fixed]
        if share := getattr(engine, "memory_share", 0.0):
            if machine.kind == "cpu":
                from coterie.engines.vllm_config import CPU_GIB

                return CPU_GIB
            kept = max(sampling) if apart else sum(sampling)  # a pool has engines of its own
            return max(1 / 8, (share * machine.memory - self.process - kept) / GIB / (1 + BESIDE))
        kinds = ("weights", "copy") if apart else (*KEPT, "gradients")
        return budget_gib(
            int(machine.memory - self.process - sum(sum(memory.get(kind, 0) for kind in kinds) for memory in fixed))
        )

    def share(self, name: str) -> Share:
        """Returns one policy's part of the device's memory and time."""
        policy, settings = self.policies[name], self.config.policies[name]
        with self.shapes.mode:
            costs = self._once(("costs", *self._shape(name)), lambda: self.decoders[name].costs)
        memory, update_s = {**self.fixed[name], "cache": self._cache(name, costs)}, 0.0
        samples = self.asked.samples.get(name, [])
        if name in self.learner.trainees and samples:
            shape = self._shape(name)
            worst = max(self._microbatches(shape), key=_weight)
            key = ("update", *shape, _weight(worst), len(worst), sum(len(pack.rows) for pack in worst))
            memory["activations"] = self._once(key, lambda: self._update(name, worst))
            update_s = self._update_s(name, samples)
        tests = min(self.config.eval.tasks, count_of(self.config.environment, "test") or self.config.eval.tasks)
        return Share(
            name, policy.kind, settings.model, policy.model.size,
            sum(weight.numel() for weight in policy.model.trained) if name in self.learner.trainees else 0,
            memory, self._seconds(name, costs, ((wave, self._scale) for wave in self.asked.waves.get(name, ()))),
            update_s,
            self._seconds(name, costs, self._played(name, self.config.train.eval_tasks)),
            self._seconds(name, costs, self._played(name, tests)),
        )  # fmt: skip

    def _microbatches(self, shape: tuple[object, ...]) -> Iterator[list[Pack]]:
        """Yields a step's micro-batches, of all policies of one shape, which are measured once.

        Every task has samples like these: so many tasks as fill one, and a part of another.
        """
        for name in self.learner.trainees:
            if self._shape(name) != shape or not (samples := self.asked.samples.get(name)):
                continue
            tokens = sum(len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples)
            enough = 1 + self.policies[name].optimizer.tokens_per_microbatch // tokens
            copies = min(-(-self.config.train.tasks_per_step // self.asked.tasks), 1 + enough)
            like = [
                replace(sample, prompt_ids=(copy, *sample.prompt_ids[1:]))
                for copy in range(copies)
                for sample in samples
            ]
            yield from self.learner.microbatches(name, rows_of(graded(like), self.config.loss))

    def _shape(self, name: str) -> tuple[object, ...]:
        """Returns the facts that policies of equal memory and time have in common, in this plan or another."""
        policy, settings = self.policies[name], self.config.policies[name]
        network = policy.model.net.config.to_json_string()
        return network, settings.kind, settings.lora, policy.dtype, policy.optimizer, self.config.loss

    def _once(self, key: tuple[object, ...], measure: Callable[[], T]) -> T:
        written = repr(key)
        if written not in KNOWN:
            KNOWN[written] = measure()
        return KNOWN[written]  # pyright: ignore[reportReturnType]

    def _fixed(self, name: str) -> dict[str, int]:
        """Returns bytes that are taken all the time, and of gradients; shared storage counts where it is first met."""
        policy = self.policies[name]
        weights = sum(map(self._bytes, policy.model.net.state_dict(keep_vars=True).values()))
        with self.shapes.mode:
            copies = [*self.decoders[name].net.state_dict(keep_vars=True).values(), *self.decoders[name].steps().copies]
        copy = sum(map(self._bytes, copies))
        memory = {"weights": weights, "copy": copy}
        if trainee := self.learner.trainees.get(name):
            trained = sum(4 * weight.numel() for weight in trainee.model.trained)
            reference = trainee.reference
            held = sum(map(self._bytes, reference.net.state_dict(keep_vars=True).values())) if reference else 0
            memory |= {"reference": held, "gradients": trained, "averages": 2 * trained}
        return memory

    def _bytes(self, tensor: torch.Tensor) -> int:
        key, size = storage_of(tensor)
        if key in self._seen:
            return 0
        self._seen.add(key)
        return size

    def _cache(self, name: str, costs: Costs) -> int:
        """Returns the bytes of what is decoded at once: all that waits, or as much as the engine's memory holds."""
        most = 0
        for wave, times in self._waves(name):
            longest = max(len(request.prompt_ids) for request in wave)
            max_tokens = max(request.max_tokens for request in wave)
            rows, prompts = sum(len(request.seeds) for request in wave), len({request.prompt_ids for request in wave})
            whole = costs.of(int(rows * times), int(prompts * times), longest, max_tokens)
            alone = costs.of(1, 1, longest, max_tokens)
            most = max(most, alone, min(whole, int(self.budget * GIB)))
        if most > self.budget * GIB:
            self.remarks.append(f"engine.memory_gib = {self.budget:g} holds no reply of {name}: each is decoded alone")
        return most

    def _waves(self, name: str) -> Iterator[tuple[Sequence[Request], float]]:
        """Yields requests that are answered side by side, and how often a step, a validation or a test has them."""
        played = min(self.config.environment.side_by_side, max(self.config.train.eval_tasks, self.config.eval.tasks))
        yield from ((wave, self._scale) for wave in self.asked.waves.get(name, ()))
        yield from self._played(name, played)

    def _played(self, name: str, tasks: int) -> Iterator[tuple[Sequence[Request], float]]:
        """Yields the waves of requests of an evaluation of so many tasks, with a reply to each prompt."""
        for wave in self.asked.waves.get(name, ()):
            yield [replace(request, seeds=request.seeds[:1]) for request in wave], tasks / self.asked.tasks

    def _update(self, name: str, batch: Sequence[Pack]) -> int:
        """Returns the most bytes that a micro-batch's forward and backward take beside what is there."""
        model = self.learner.trainees[name].model
        with self.shapes.mode:
            for weight in model.trained:
                weight.grad = torch.zeros_like(weight)
            known = [*model.net.state_dict(keep_vars=True).values(), *(weight.grad for weight in model.trained)]
            with Meter(tensor for tensor in known if tensor is not None) as meter:
                self.learner.forward(name, batch).loss.backward()
            model.net.zero_grad(set_to_none=True)
        return meter.peak

    def _seconds(self, name: str, costs: Costs, waves: Iterable[tuple[Sequence[Request], float]]) -> float:
        """Estimates the seconds of replies: prompts take as long as computing, tokens as reading weights and caches."""
        policy, machine, seconds = self.policies[name], self.machine, 0.0
        size = sum(weight.numel() for weight in policy.model.net.parameters())
        layer_s = GRAPH_S if machine.kind == "cuda" and usual_layers(policy.model.net) else LAYER_S
        a_pass = size * policy.dtype.itemsize / machine.bandwidth + policy.model.config.num_hidden_layers * layer_s
        for wave, times in waves:
            prompts = sum(map(len, {request.prompt_ids for request in wave})) * times
            rows = sum(len(request.seeds) for request in wave) * times
            tokens = max(request.max_tokens for request in wave)
            cache = rows * (max(len(request.prompt_ids) for request in wave) + tokens) * costs.token
            passes = 1 + cache // (self.budget * GIB)
            reading = passes * a_pass + cache / 2 / machine.bandwidth
            seconds += 2 * size * prompts / self._speed(policy)
            seconds += tokens * max(2 * size * rows / self._speed(policy), reading)
        return seconds

    def _update_s(self, name: str, samples: Sequence[Sample]) -> float:
        """Estimates the seconds of a step's update: a forward and a backward are three forwards, four if recomputed."""
        policy = self.policies[name]
        packs = [pack for batch in self.learner.microbatches(name, rows_of(graded(samples), self.config.loss))
                 for pack in batch]  # fmt: skip
        times = 8 if policy.optimizer.checkpointing else 6
        size = sum(weight.numel() for weight in policy.model.net.parameters())
        return times * size * sum(pack.tokens for pack in packs) * self._scale / self._speed(policy)

    @property
    def _scale(self) -> float:
        """Number of tasks of a step for each one that was played."""
        return self.config.train.tasks_per_step / self.asked.tasks

    def _speed(self, policy: Policy) -> float:
        machine = self.machine
        return BUSY * (machine.bfloat16 if policy.dtype == torch.bfloat16 else machine.float32)


def graded(samples: Sequence[Sample]) -> list[Graded]:
    """Returns samples with advantages, as if each had taught something."""
    return [Graded(sample, (-1.0) ** number, 1.0, str(number // 2)) for number, sample in enumerate(samples)]


def _weight(batch: Sequence[Pack]) -> int:
    """Returns a number by which the memory of micro-batches compares: tokens, and more where they are in one row."""
    longest = max(pack.tokens for pack in batch)
    return len(batch) * longest * (4096 + longest)
