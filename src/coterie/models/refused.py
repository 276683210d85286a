"""Errors of models that cannot be loaded, for lack of memory or of weights."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from coterie import ram
from coterie.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def refuse_for_memory(error: Exception, source: str) -> None:
    """Refuses a model whose loading failed for lack of memory; does nothing if it failed for another reason.

    Raises:
        ConfigError: memory is lacking, and nothing is wrong with the model's files.
    """
    if ram.lacking(error):
        raise ConfigError(
            f"{source}: there is not enough memory to load it, and {ram.free() / (1 << 30):.1f} GiB are free; free "
            "some, raise the limit (ulimit -v), or name a smaller model"
        ) from error


def refuse_missing(net: PreTrainedModel, missing: Collection[str], source: str, advice: str) -> None:
    """Refuses a network that lacks weights, which the library has filled with random numbers.

    Buffers do not count, and weights that are one tensor count once.

    Args:
        missing: names of what was not in the model's files, as the library gives them.
        source: where the network is from, for the error.
        advice: what to do about it.

    Raises:
        ConfigError: a weight is missing.
    """
    weights = [name for name, _ in net.named_parameters()]
    if lacking := [name for name in weights if name in missing]:
        raise ConfigError(
            f"{source}: {len(lacking)} of its {len(weights)} weights {'is' if len(lacking) == 1 else 'are'} missing, "
            f"the first is {lacking[0]}; {advice}"
        )
