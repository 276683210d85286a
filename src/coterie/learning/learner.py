"""The learner: optimizer steps for each policy from its own rows, in one process or one rank of several.

Each policy has its own AdamW, which takes a step only if the policy has rows. Gradients are clipped by the
norm of the policy. All gradients of an update are checked before any weight changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Protocol

import torch

from coterie.errors import EngineError, UpdateError
from coterie.kernel.team import Graded
from coterie.learning.batch import Learned, Pack, RoleLearned, Row, alone, merged, microbatches, pack, rows_of
from coterie.learning.forward import Layout, Scores, by_parts, lay_out, merges, score, way_of
from coterie.learning.lean import LeanForward, can_lean
from coterie.learning.loss import Loss, Tokens, kl_k3
from coterie.learning.optimizer import OptimizerConfig, learning_rate
from coterie.learning.policy import Policy
from coterie.learning.ranks import Ranks
from coterie.models.files import OPTIMIZERS, POLICIES
from coterie.models.load import Model, checkpoint_activations
from coterie.models.threads import Threads
from coterie.seeds import seed_of


@dataclass(slots=True)
class Trainee:
    """A policy under training: its optimizer and, where the loss asks for one, a reference.

    lean, reference_lean: both without their modules, where they can be computed so.
    """

    policy: Policy
    optimizer: torch.optim.Optimizer
    reference: Model | None
    lean: LeanForward | None
    reference_lean: LeanForward | None

    @property
    def model(self) -> Model:
        """Model of the policy."""
        return self.policy.model

    @property
    def config(self) -> OptimizerConfig:
        """Optimizer settings of the policy."""
        return self.policy.optimizer


@dataclass(frozen=True, slots=True)
class Forward:
    """A micro-batch's loss and what it was made of. reference: its log-probabilities, (N,), where the loss asks."""

    layout: Layout
    scores: Scores
    tokens: Tokens
    reference: torch.Tensor | None
    loss: torch.Tensor


class Learner(Protocol):
    """A learner, which turns a team's experience into other weights."""

    def update(self, experience: Mapping[str, Sequence[Graded]], step: int, spent: float = 0.0) -> dict[str, Learned]:
        """Takes one rollout's optimizer steps, for every policy that has something to learn.

        Args:
            spent: share of the token budget that was spent before this step, for the schedule of the learning rate.

        Returns:
            metrics by policy; one without rows has none, and its weights are bit-identical afterwards.

        Raises:
            UpdateError: a loss or gradient is not finite; no policy's weights have moved in that optimizer step.
        """
        ...

    def weights(self, name: str) -> Mapping[str, torch.Tensor]:
        """Returns the weights that a checkpoint keeps of a policy, whole, under the names that its model gives them."""
        ...

    def save(self, folder: Path) -> None:
        """Writes the state of every policy's optimizer into a folder of a checkpoint."""
        ...

    def close(self) -> None:
        """Lets go of all that trains beside this process."""
        ...


class LocalLearner:
    """A learner that trains the policies of a team in this process, alone or together with others.

    Args:
        policies: by name; their weights are changed in place.
        total_steps: what the schedules run over.
        max_mismatch: nats by which engine and learner may differ, in the mean over a rollout's tokens.
        checkpoint: its weights and optimizer states are loaded. The reference of the KL term is made before that, from
            the initial weights.
        ranks: the processes that train together; each has a learner like this and is given the same experience.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        loss: Loss,
        total_steps: int,
        *,
        seed: int = 0,
        max_mismatch: float = math.inf,
        checkpoint: Path | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.loss = loss
        self.total_steps = total_steps
        self.max_mismatch = max_mismatch
        self._seed = seed
        if len({id(policy.model.net) for policy in policies.values()}) < len(policies):
            raise ValueError(f"two of the policies {', '.join(policies)} are one network: give each its own")
        self.trainees = {name: self._trainee(policy, checkpoint) for name, policy in policies.items()}
        self._threads = Threads([trainee.model.net for trainee in self.trainees.values()])

    @cached_property
    def at_once(self) -> int:
        """Number of policies that may be trained side by side."""
        small = len(self.trainees) > 1 and all(trainee.lean for trainee in self.trainees.values())
        return min(len(self.trainees), self._threads.most) if small and self._threads.adapts else 1

    @cached_property
    def _merges(self) -> bool:
        """True if equal replies are trained as one row. It is never read in a plan, whose tensors have no data."""
        return merges(self.loss)

    def _trainee(self, policy: Policy, checkpoint: Path | None) -> Trainee:
        model, config = policy.model, policy.optimizer
        if config.checkpointing:
            checkpoint_activations(model.net)
        reference = model.start() if self.loss.kl else None
        if checkpoint:
            model.take(checkpoint / POLICIES / policy.name)
        for net in (model, reference):
            if net is not None:
                self.ranks.shard(net)
        optimizer = torch.optim.AdamW(
            model.trained, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay
        )
        if checkpoint:
            self.ranks.load(optimizer, checkpoint / OPTIMIZERS / policy.name)
        lean, reference_lean = (_lean(policy, net) for net in (model, reference))
        return Trainee(policy, optimizer, reference, lean, reference_lean)

    def update(self, experience: Mapping[str, Sequence[Graded]], step: int, spent: float = 0.0) -> dict[str, Learned]:
        """Takes one rollout's optimizer steps, for every policy that has rows.

        Returns:
            metrics by policy; a policy without rows has none and is bit-identical afterwards.

        Raises:
            UpdateError: a loss or gradient is not finite, or the engine sampled from another distribution than the
                learner's; the weights of this optimizer step are untouched, for all policies.
            EngineError: a reply has tokens that its policy does not have; no weight has moved.
        """
        for name, graded in experience.items():
            self._check_tokens(name, graded)
        with self._threads.settled():
            return self._updated(experience, step, spent)

    def _updated(self, experience: Mapping[str, Sequence[Graded]], step: int, spent: float) -> dict[str, Learned]:
        totals: dict[str, Totals] = {}
        parts = {name: self._rows(name, graded, step) for name, graded in experience.items() if graded}
        rates = {name: learning_rate(self.trainees[name].config, step, self.total_steps, spent) for name in parts}
        for number in range(max(map(len, parts.values()), default=0)):
            rows = {name: shares[number] for name, shares in parts.items() if number < len(shares) and shares[number]}
            for name, found in self._gradients(rows, number).items():
                totals.setdefault(name, Totals()).add(found)
            for name in rows:
                optimizer = self.trainees[name].optimizer
                for group in optimizer.param_groups:
                    group["lr"] = rates[name]
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        return {name: total.learned(rates[name]) for name, total in totals.items()}

    def weights(self, name: str) -> Mapping[str, torch.Tensor]:
        """Returns the weights that a checkpoint keeps of a policy, whole, under the names that its model gives them."""
        return self.ranks.kept(self.trainees[name].model.weights())

    def save(self, folder: Path) -> None:
        """Writes the state of every policy's optimizer to FOLDER/optimizers."""
        (folder / OPTIMIZERS).mkdir(parents=True, exist_ok=True)
        for name, trainee in self.trainees.items():
            self.ranks.save(trainee.optimizer, folder / OPTIMIZERS / name)

    def close(self) -> None:
        """Restores the number of threads; nothing trains beside this process."""
        self._threads.restore()

    def _check_mismatch(self, name: str, apart: float) -> None:
        """Raises UpdateError: engine and learner differ too much; called before any weight has moved."""
        if apart > self.max_mismatch:
            raise UpdateError(
                f"the engine sampled for policy '{name}' from another distribution than the learner's: they differ by "
                f"{apart:.2g} nats in the mean, and train.max_mismatch = {self.max_mismatch:g}; use "
                "train.dtype='float32', see whether the engine has the same weights, template and temperature, or let "
                "rollouts run less far ahead"
            )

    def _check_tokens(self, name: str, graded: Sequence[Graded]) -> None:
        """Raises EngineError: a reply has tokens that the policy does not have."""
        count = self.trainees[name].model.vocabulary
        for member in graded:
            low, high = min(member.sample.completion_ids), max(member.sample.completion_ids)
            if low < 0 or high >= count:
                odd = low if low < 0 else high
                raise EngineError(f"the engine gave token {odd}, and policy '{name}' has tokens 0 to {count - 1}")

    def _rows(self, name: str, graded: Sequence[Graded], step: int) -> list[list[Row]]:
        """Returns the rows of each of the step's optimizer steps.

        With a `correction` of the loss, rows of the second and later optimizer steps also hold their log-probabilities
        under the weights before the first one.
        """
        groups = len({member.group for member in graded})
        parts = [rows_of(part, self.loss, groups=groups) for part in self._parts(name, graded, step)]
        first, *later = map(merged, parts) if self._merges else parts
        return [first, *([self._dated(name, rows) for rows in later] if self.loss.correction != "none" else later)]

    def _parts(self, name: str, graded: Sequence[Graded], step: int) -> list[list[Graded]]:
        """Shuffles the step's groups and deals them out to its optimizer steps; a group stays whole.

        Each part is an estimate of the whole step's gradient: its loss is a mean over itself.
        """
        groups: dict[str, list[Graded]] = {}
        for member in graded:
            groups.setdefault(member.group, []).append(member)
        names = sorted(groups)
        Random(seed_of("updates", self._seed, step)).shuffle(names)
        count = self.trainees[name].config.updates_per_step
        return [[member for name in names[part::count] for member in groups[name]] for part in range(count)]

    def _dated(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Returns rows with their log-probabilities by the weights as they are."""
        dated: list[Row] = []
        trainee = self.trainees[name]
        for batch, counts in self.ranks.mine(self.microbatches(name, rows)):
            layout = lay_out(batch, way_of(trainee.model, batch))
            with torch.no_grad():
                logprobs = score(trainee.model, layout, trainee.policy.dtype, trainee.lean).logprobs
            each = logprobs.split([len(row.completion_ids) for row in layout.rows])
            if counts:
                own = zip(layout.rows, each, strict=True)
                dated += [replace(row, old_logprobs=tuple(mine.tolist())) for row, mine in own]
        return [row for part in self.ranks.gathered(dated) for row in part]

    def _gradients(self, rows: Mapping[str, Sequence[Row]], number: int) -> dict[str, Totals]:
        """Computes all policies' gradients, of small networks in parallel. If one fails, all gradients are cleared."""
        works = [partial(self._gradient, name, mine, number) for name, mine in rows.items()]
        try:
            found = self._threads.beside(works) if self.at_once > 1 else [work() for work in works]
        except BaseException:
            for trainee in self.trainees.values():
                trainee.model.net.zero_grad(set_to_none=True)
            raise
        return dict(zip(rows, found, strict=True))

    def _gradient(self, name: str, rows: Sequence[Row], number: int) -> Totals:
        """Accumulates a policy's gradient and clips it. Returns the sums over its rows, with the norm before that."""
        totals = self.accumulate(name, rows)
        weights = self.trainees[name].model.trained
        clipped = torch.nn.utils.clip_grad_norm_(weights, self.trainees[name].config.clip_norm)
        totals.norms.append(float(self.ranks.whole(clipped)))
        if not (math.isfinite(totals.loss) and math.isfinite(totals.norms[-1])):
            self._refuse(name, rows, untouched=number == 0)
        if number == 0:
            self._check_mismatch(name, totals.mean("mismatch"))
        return totals

    def accumulate(self, name: str, rows: Sequence[Row]) -> Totals:
        """Adds the gradient of rows to a policy's, micro-batch by micro-batch. Returns the sums over these rows."""
        mine, trainee = Totals(), self.trainees[name]
        with ExitStack() as lent:
            for lean in (trainee.lean, trainee.reference_lean):
                if lean is not None:
                    lent.enter_context(lean.lent())
            for batch, counts in self.ranks.mine(self.microbatches(name, rows)):
                self._backward(name, batch, mine if counts else None)
        totals = Totals()
        for part in self.ranks.gathered(mine):
            totals.add(part)
        return totals

    def microbatches(self, name: str, rows: Sequence[Row]) -> list[list[Pack]]:
        """Packs a policy's rows and splits them into micro-batches."""
        trainee = self.trainees[name]
        if not trainee.model.packs:
            return alone(rows)
        budget = max(1, trainee.config.tokens_per_microbatch // self.at_once)  # even if fewer have rows this time
        split = partial(by_parts, trainee.model)
        return microbatches(pack(rows, budget, split if trainee.model.shares else lambda _: True), budget, split)

    def forward(self, name: str, batch: Sequence[Pack]) -> Forward:
        """Computes the loss of a micro-batch, ready for its backward pass."""
        trainee = self.trainees[name]
        layout, device = lay_out(batch, way_of(trainee.model, batch)), trainee.model.device
        if trainee.config.checkpointing:
            trainee.model.net.train()  # layers checkpoint in training mode only; dropout is off
        scores = score(trainee.model, layout, trainee.policy.dtype, trainee.lean)
        trainee.model.net.eval()
        tokens = layout.tokens(scores.logprobs, corrected=self.loss.correction != "none")
        weights = layout.spread([row.token_weight for row in layout.rows], device)
        reference = None
        if trainee.reference is not None:
            with torch.no_grad():
                reference = score(trainee.reference, layout, trainee.policy.dtype, trainee.reference_lean).logprobs
        return Forward(layout, scores, tokens, reference, (weights * self.loss(tokens, reference)).sum())

    def _backward(self, name: str, batch: Sequence[Pack], totals: Totals | None) -> None:
        """Adds a micro-batch's gradient and figures. totals: None: it fills a gap, and adds nothing."""
        done = self.forward(name, batch)
        done.scores.logprobs.retain_grad()
        (0 * done.loss if totals is None else done.loss).backward()
        if totals is not None:
            totals.count(self.loss, done)

    def _refuse(self, name: str, rows: Sequence[Row], *, untouched: bool) -> None:
        """Raises UpdateError, which names the group whose loss or gradient is not finite."""
        net = self.trainees[name].model.net
        spoilt, mend = "no single group", "start a new run with a lower optimizer.lr"
        for group in sorted({row.group for row in rows}):
            net.zero_grad(set_to_none=True)
            mine = [row for row in rows if row.group == group]
            loss = self.accumulate(name, mine).loss
            gradients = [self.ranks.whole(weight.grad) for weight in net.parameters() if weight.grad is not None]
            if not math.isfinite(loss) or not all(bool(gradient.isfinite().all()) for gradient in gradients):
                spoilt = f"group {group}"
                if not math.isfinite(loss):
                    mend = f"{type(self.loss).__name__} gives a loss of {loss}: look there, or {mend}"
                break
        raise UpdateError(f"the update of policy '{name}' is not finite, in {spoilt}; {mend}", untouched=untouched)


def _lean(policy: Policy, model: Model | None) -> LeanForward | None:
    exact = policy.dtype == torch.float32 and not policy.optimizer.checkpointing
    return LeanForward(model) if model is not None and exact and can_lean(model) else None


class Totals:
    """Sums over a policy's rows, and the metrics made of them."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.tokens = 0
        self.sequences = 0
        self.loss = 0.0
        self.sums: dict[str, float] = {}
        self.peaks: dict[str, float] = {}
        self.roles: dict[str, torch.Tensor] = {}

    def add(self, other: Totals) -> None:
        """Adds the sums of another part of the rows, or of another rank."""
        self.norms += other.norms
        self.tokens += other.tokens
        self.sequences += other.sequences
        self.loss += other.loss
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in other.peaks.items():
            self.peaks[name] = max(self.peaks.get(name, 0.0), value)
        for role, sums in other.roles.items():
            self.roles[role] = self.roles.get(role, torch.zeros(3)) + sums

    def count(self, loss: Loss, done: Forward) -> None:
        """Adds the sums of a micro-batch, after its backward pass."""
        layout, scores, tokens, reference = done.layout, done.scores, done.tokens, done.reference
        self.loss += float(done.loss.detach())
        self.sequences += sum(row.copies for row in layout.rows)
        copies = layout.spread([row.copies for row in layout.rows], scores.entropy.device)
        logprobs, entropy = scores.logprobs.detach(), scores.entropy
        corrected = loss.correction != "none"
        difference = ((tokens.old if corrected else logprobs) - tokens.rollout).abs()
        with torch.no_grad():
            shares = loss.shares(tokens)
        each = {"entropy": entropy, "ratio": (logprobs - tokens.old).exp(), "mismatch": difference} | shares
        if corrected:
            importance = loss.importance(tokens)
            weights = loss.weights(importance)
            each |= {"correction": weights, "correction_cut": weights != importance}
            self.peaks["correction_max"] = max(self.peaks.get("correction_max", 0.0), float(weights.max()))
        if reference is not None:
            each["kl_k3"] = kl_k3(logprobs, reference)
        for name, values in each.items():
            self.sums[name] = self.sums.get(name, 0.0) + float((values * copies).sum())
        self.tokens += int(copies.sum())
        assert scores.logprobs.grad is not None
        pulls = scores.logprobs.grad.abs() * scores.steepness
        each_token = torch.stack([copies, entropy * copies, pulls], dim=1).cpu()
        lengths = [len(row.completion_ids) for row in layout.rows]
        for row, values in zip(layout.rows, each_token.split(lengths), strict=True):
            self.roles[row.role] = self.roles.get(row.role, torch.zeros(3)) + values.sum(dim=0)
        self.peaks["mismatch_max"] = max(self.peaks.get("mismatch_max", 0.0), float(difference.max()))

    def mean(self, name: str) -> float:
        """Returns a metric's mean over the tokens so far."""
        return self.sums[name] / self.tokens

    def learned(self, lr: float) -> Learned:
        """Returns means over the step's trained tokens; the norm is the mean over its optimizer steps."""
        means = {name: self.mean(name) for name in self.sums}
        metrics = {
            "loss": self.loss,
            "grad_norm": sum(self.norms) / len(self.norms),
            "trained_tokens": self.tokens,
            "trained_sequences": self.sequences,
            **means,
            **self.peaks,
            "lr": lr,
        }
        by_role = {role: sums.tolist() for role, sums in self.roles.items()}
        roles = {role: RoleLearned(entropy / tokens, pull) for role, (tokens, entropy, pull) in by_role.items()}
        return Learned(metrics, roles)
