"""Losses: the objectives that the learner minimises. A loss returns one number per trained token.

To add a loss, write a class here and add a line to `registry.py`, or name your own class as `FILE.py:Class`. Its
fields are the settings of `[loss]` in a config. `batch.py` defines how the numbers are summed and normalised.
Nothing here imports torch, so settings can be read without it: a loss uses only the methods of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from coterie.errors import ConfigError
from coterie.kernel.environment import Settings

if TYPE_CHECKING:
    from torch import Tensor

Denominator = Literal["tokens", "sequences", "tasks"]
Correction = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """N trained tokens of R whole rows, as a loss sees them: tensors on one device.

    logprobs: (N,), of the weights as they are; it alone has a gradient. old: (N,), what the ratio compares them with:
    of the distribution that sampled, as the engine reported it; under a `correction`, of the weights before the
    rollout's first optimizer step. rollout: (N,), as the engine reported it, in any case. advantages: (N,), each token
    its row's. rows: (N,) integers, the row of each token. lengths: (R,), the tokens of each row.
    """

    logprobs: Tensor
    old: Tensor
    rollout: Tensor
    advantages: Tensor
    rows: Tensor
    lengths: Tensor

    def row_means(self, values: Tensor) -> Tensor:
        """Returns the mean of each token's row.

        Args:
            values: (N,).

        Returns:
            (N,), with their gradient.
        """
        return self.row_sums(values) / self.lengths[self.rows]

    def row_sums(self, values: Tensor) -> Tensor:
        """Returns the sum of each token's row.

        Args:
            values: (N,).

        Returns:
            (N,), with their gradient.
        """
        return values.new_zeros(len(self.lengths)).index_add(0, self.rows, values)[self.rows]


class Loss(Settings):
    """Base class of losses. It provides the mean, a KL term, a penalty for long replies, and importance weights."""

    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL term to the starting weights. With 0, no reference model is kept in memory."""
    denominator: Denominator = "tokens"
    """Items over which a policy's loss in a step is averaged. tokens: all tokens. sequences: all replies, each with its
    mean over tokens. tasks: all tasks, with the sum over the tokens of a reply, as in the policy gradient."""
    overlong_from: int | None = Field(default=None, ge=0)
    """Length of a reply, in tokens, above which a length penalty applies. none: no length penalty."""
    overlong_buffer: int = Field(default=64, ge=1)
    """Number of tokens beyond overlong_from over which the penalty rises linearly to overlong_penalty."""
    overlong_penalty: float = Field(default=1.0, gt=0)
    """Maximum length penalty. It is subtracted from the advantage of a reply."""
    correction: Correction = "none"
    """Importance weights pi_start / pi_engine, for an engine whose sampling distribution differs from the learner's.

    pi_start is the policy before the first optimizer step on the rollout. With a correction, the ratio of the loss
    compares with pi_start instead of the engine. token_…: one weight per token; sequence_…: one weight per reply.
    …_truncate: weights are limited to correction_max. …_mask: weights above correction_max or below correction_min
    become 0. Masked tokens still count in the denominator of the mean. The KL term is not weighted."""
    correction_max: float = Field(default=2.0, ge=1)
    """Upper bound of the weights: with truncate the maximum weight, with mask the largest weight that is kept."""
    correction_min: float = Field(default=0.0, ge=0, le=1)
    """With mask, the smallest weight that is kept."""

    corrects: ClassVar[bool] = True
    """True if the loss remains valid when the weights are newer than those that sampled."""
    bounds: ClassVar[tuple[str, ...]] = ()
    """Names of settings without effect while the ratio is always 1, such as the bounds of the clip."""

    def tokens(self, batch: Tokens) -> Tensor:
        """Returns the policy term of each token, (N,)."""
        raise NotImplementedError

    def shares(self, batch: Tokens) -> dict[str, Tensor]:
        """Returns additional quantities to log, by name. Each has shape (N,); its mean over tokens becomes a metric."""
        return {}

    def advantage(self, advantage: float, length: int) -> float:
        """Returns the advantage of a reply minus its length penalty.

        The penalty rises linearly from `overlong_from` tokens on. It reaches its maximum, `overlong_penalty`, after
        `overlong_buffer` more tokens.

        Source:
            DAPO's soft punishment, arXiv:2503.14476 eq. 13, which subtracts it from the reward before replies are
            compared. Here it is subtracted afterwards, so it does not depend on the length of the other replies.
        """
        if self.overlong_from is None:
            return advantage
        over = min(1.0, max(0.0, (length - self.overlong_from) / self.overlong_buffer))
        return advantage - self.overlong_penalty * over

    def inert(self) -> dict[str, str]:
        """Returns settings of the length penalty and the correction that have no effect because these are off."""
        inert: dict[str, str] = {}
        if self.overlong_from is None:
            inert = dict.fromkeys(("overlong_buffer", "overlong_penalty"), "overlong_from = none charges no length")
        if self.correction == "none":
            inert |= dict.fromkeys(("correction_max", "correction_min"), "correction = 'none' weighs nothing")
        elif not self.correction.endswith("mask"):
            inert["correction_min"] = f"correction = '{self.correction}' leaves nothing out"
        return inert

    def importance(self, batch: Tokens) -> Tensor:
        """Returns pi_start / pi_engine for each token or for its whole reply, shape (N,), without gradient."""
        apart = batch.old - batch.rollout
        return (batch.row_sums(apart) if self.correction.startswith("sequence") else apart).exp()

    def weights(self, importance: Tensor) -> Tensor:
        """Returns the weight of each token's policy term, shape (N,): its importance ratio, truncated or masked.

        Token ratios correct for the engine's rounding and older weights to first order. The ratio of a whole reply is
        exact, but its variance grows with the length of the reply.

        Source:
            Truncated importance sampling, Ionides, JCGS 17 (2008). The four forms are those of TRL 1.16
            (`vllm_importance_sampling_mode`), whose masks have no lower bound by default either.
        """
        if self.correction.endswith("truncate"):
            return importance.clamp(max=self.correction_max)
        inside = (importance >= self.correction_min) & (importance <= self.correction_max)
        return importance.masked_fill(~inside, 0.0)  # a long reply's may be infinite

    def __call__(self, batch: Tokens, reference: Tensor | None = None) -> Tensor:
        """Returns the loss of each token: its policy term, weighed by the correction, plus `kl` times its KL term.

        Args:
            reference: (N,), log-probabilities of the reference model; needed only if kl > 0.

        Returns:
            (N,).

        Raises:
            ConfigError: `tokens` does not return one number per token, or the result does not depend on
                `batch.logprobs`.
        """
        losses = self.tokens(batch)
        if losses.shape != batch.logprobs.shape:
            raise ConfigError(
                f"{type(self).__name__}.tokens gives {tuple(losses.shape)} numbers for {len(batch.logprobs)} tokens; "
                "return one a token, (N,)"
            )
        if batch.logprobs.requires_grad and not losses.requires_grad:
            raise ConfigError(
                f"{type(self).__name__}.tokens does not depend on batch.logprobs, so that nothing could be learned"
            )
        if self.correction != "none":
            losses = losses * self.weights(self.importance(batch))
        if self.kl:
            assert reference is not None
            losses = losses + self.kl * (batch.logprobs - batch.old).exp() * kl_k3(batch.logprobs, reference)
        return losses


class Clip(Loss):
    """Clipped importance ratio of each token, as in PPO and GRPO."""

    epsilon: float = Field(default=0.2, gt=0, lt=1)
    """Lower clip: the ratio's bound is 1 - epsilon."""
    epsilon_high: float | None = Field(default=None, gt=0)
    """Upper clip: the bound is 1 + epsilon_high; none: as epsilon."""

    bounds: ClassVar[tuple[str, ...]] = ("epsilon", "epsilon_high")

    def ratio(self, batch: Tokens) -> Tensor:
        """Returns the ratio by which the weights have moved: pi / pi_old of each token."""
        return (batch.logprobs - batch.old).exp()

    def tokens(self, batch: Tokens) -> Tensor:
        """Returns -min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A) of each token.

        Source:
            PPO, arXiv:1707.06347 eq. 7; the wider upper bound is DAPO's, arXiv:2503.14476 eq. 10.
        """
        ratio = self.ratio(batch)
        return -(ratio * batch.advantages).minimum(ratio.clamp(1 - self.epsilon, 1 + self._high) * batch.advantages)

    def shares(self, batch: Tokens) -> dict[str, Tensor]:
        """Returns clip_share: the tokens whose gradient the clip has cut."""
        ratio, advantages = self.ratio(batch), batch.advantages
        above = (ratio > 1 + self._high) & (advantages > 0)
        below = (ratio < 1 - self.epsilon) & (advantages < 0)
        return {"clip_share": above | below}

    @property
    def _high(self) -> float:
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


class GSPO(Clip):
    """Clipped importance ratio of each whole reply: its token ratios' geometric mean.

    The paper's (arXiv:2507.18071 eq. 5 to 7): s = (pi / pi_old)^(1 / length), -min(s A, clip(s) A) a reply, a mean over
    replies; the bounds 3e-4 and 4e-4. As a number a token it is the same for all tokens of a reply, whose mean is the
    paper's.
    """

    epsilon: float = Field(default=3e-4, gt=0, lt=1)
    """Lower clip: the ratio's bound is 1 - epsilon."""
    epsilon_high: float | None = Field(default=4e-4, gt=0)
    """Upper clip: the bound is 1 + epsilon_high."""
    denominator: Denominator = "sequences"
    """Items over which the loss is averaged. sequences: replies, as published. tokens: tokens, so longer replies weigh
    more. tasks: tasks, with the sum over the tokens of a reply."""

    def ratio(self, batch: Tokens) -> Tensor:
        """Returns the ratio s of the reply that a token belongs to, for each token."""
        return batch.row_means(batch.logprobs - batch.old).exp()


class PolicyGradient(Loss):
    """REINFORCE: no ratio and no clip, exact while the weights are those that sampled."""

    corrects: ClassVar[bool] = False

    def tokens(self, batch: Tokens) -> Tensor:
        """Returns -A log pi of each token."""
        return -batch.advantages * batch.logprobs


def kl_k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Returns the k3 estimate of KL(policy || reference), a token: exp(-d) - 1 + d, d = logprobs - reference.

    Never negative, unbiased. Its own gradient is that of the forward KL; multiplied by the ratio,
    as in `Loss.__call__`, the gradient is that of the reverse KL.

    Source:
        Schulman, "Approximating KL divergence" (2020).
    """
    difference = logprobs - reference
    return (-difference).exp() - 1 + difference
