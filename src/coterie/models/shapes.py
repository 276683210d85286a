"""Models without weights: the structure and tensor shapes of a network, so that very large models can be analysed.

Only a model's config is read, from a folder or the hub. Where the hub cannot be reached, the shapes of a few published
models are known.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, Qwen3Config

from coterie.errors import ConfigError, first_line, nearest
from coterie.installed import starters
from coterie.models import attention, hub
from coterie.models.adapters import Adapted
from coterie.models.copies import copied
from coterie.models.files import check_modules
from coterie.models.load import GGUF, Model, context_of, located
from coterie.models.named import NAMED
from coterie.models.trial import check_tokenizer

M = TypeVar("M", bound=Model)

QWEN3: dict[str, tuple[int, int, int, int]] = {
    "Qwen/Qwen3-0.6B": (1024, 3072, 28, 16),
    "Qwen/Qwen3-1.7B": (2048, 6144, 28, 16),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32),
    "Qwen/Qwen3-4B-Instruct-2507": (2560, 9728, 36, 32),
    "Qwen/Qwen3-8B": (4096, 12288, 36, 32),
}
"""Width, width of the feed-forward part, layers and heads of models as their publisher's configs have them."""


class Shapes:
    """A loader of models without their numbers; `mode` is entered to compute with what `counted` makes of them."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._read: dict[str, tuple[PretrainedConfig, Any]] = {}
        self._made: list[Model] = []
        self._instead: dict[int, Any] = {}

    def load(self, source: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32, where: str) -> Model:
        """Returns the model of a source, as `load_model` knows it; its tokenizer is None where there is none here.

        Args:
            device: ignored: what is counted is the same on each.

        Raises:
            ConfigError: its config is not here, and cannot be had.
        """
        if source not in self._read:
            self._read[source] = read(source, where)
        config, tokenizer = self._read[source]
        try:
            with torch.device("meta"):
                net: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
        except Exception as error:  # whatever a damaged config makes of the library's own code
            raise ConfigError(
                f"{where} = '{source}': its config makes no causal language model ({first_line(error)}); mend it, or "
                "name another model"
            ) from error
        text = config.get_text_config()
        return Model(
            net=net.eval(),
            tokenizer=tokenizer,
            stop_ids=frozenset(),
            vocabulary=text.vocab_size if tokenizer is None else min(len(tokenizer), text.vocab_size),
            context=context_of(text),
            splits=attention.install(net),
        )

    def counted(self, model: M) -> M:
        """Returns a model that computes, without numbers; models that share weights share them still."""
        self._made.append(model)  # a tensor that has gone would leave its number to another
        with self.mode:
            net = copied(model.net, _empty, _empty, self._instead)
        if isinstance(model, Adapted):
            return replace(model, net=net, base=self.counted(model.base))
        return replace(model, net=net)


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def read(source: str, where: str) -> tuple[PretrainedConfig, Any]:
    """Returns a model's config, and its tokenizer where that is here.

    Raises:
        ConfigError: it has no config that can be read, or its tokenizer may not be loaded.
    """
    folder, name = located(source, where)
    if folder.suffix == GGUF:
        from coterie.models.gguf import read_gguf

        read, tokenizer = read_gguf(folder, torch.float32, where)
        return read.config, tokenizer
    afar = not folder.is_dir() and not hub.answers()
    config, known = read_config(source, where, name, afar=afar)
    if not known or (folder.is_dir() and not any(folder.glob("tokenizer*"))):
        return config, None  # the library would make one of nothing
    if folder.is_dir() and source not in (*NAMED, *starters()):
        check_tokenizer(folder, f"{where} = '{source}'")
    try:
        return config, AutoTokenizer.from_pretrained(name, local_files_only=afar, trust_remote_code=False)
    except Exception:  # there is none here, or it cannot be read: lengths are estimated then
        return config, None


def read_config(source: str, where: str, name: str, *, afar: bool) -> tuple[PretrainedConfig, bool]:
    """Returns a model's config, and whether it is the model's own and not a published one that we know.

    Args:
        name: for the library.
        afar: it is on a hub that does not answer.

    Raises:
        ConfigError: it cannot be read, or asks for more modules than any model has.
    """
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=afar, trust_remote_code=False)
    except Exception as error:  # whatever a damaged config makes of the library's own code
        if source in QWEN3:
            return _published(source), False
        told = "its config cannot be read" if Path(name).is_dir() else "no config of that name can be had"
        advice = (
            "mend its config.json, or name another model"
            if Path(name).is_dir()
            else f"give a folder, or fetch it where the hub can be reached: hf download {source}"
        )
        advice = nearest(source, (*NAMED, *QWEN3, *starters())).removeprefix("; ") or advice
        raise ConfigError(f"{where} = '{source}': {told} ({first_line(error).split('. ')[0]}); {advice}") from error
    check_modules(f"{where} = '{source}'", config.to_dict())
    return config, True


def _published(source: str) -> PretrainedConfig:
    width, inner, layers, heads = QWEN3[source]
    return Qwen3Config(
        vocab_size=151_936,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=262_144 if source.endswith("2507") else 40_960,
        tie_word_embeddings=width < 4096,
    )
