"""Adapters (LoRA): a few trained weights of a policy's own, over a base that several policies share.

Each policy has its own network object. Its frozen weights are the tensors of the base, so the base is in memory once.
Adapters are never switched inside one network: if another adapter became active between a forward and its backward
pass, gradients would be lost.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from coterie.errors import CheckpointError, ConfigError, first_line, nearest
from coterie.models.load import Model, load_model

FILE = "adapter_model.safetensors"


@dataclass(slots=True)
class Adapted(Model):
    """A base's model with an adapter of its own.

    adapter: PEFT's view of the network. base: without any adapter. source: what the base is called in its file.
    """

    adapter: Any = field(kw_only=True)
    base: Model = field(kw_only=True)
    source: str = field(kw_only=True)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Returns the adapter's weights, under the names of PEFT's files."""
        return _peft().get_peft_model_state_dict(self.adapter, save_embedding_layers=False)  # "auto" asks the hub

    def saved(self, folder: Path) -> Mapping[str, torch.Tensor]:
        """Returns the adapter's weights from a PEFT folder."""
        try:
            return load_file(folder / FILE)
        except OSError as error:
            raise CheckpointError(f"{folder} holds no adapter ({FILE} is missing)") from error

    def take(self, folder: Path) -> None:
        """Loads the weights of an adapter's folder.

        Raises:
            CheckpointError: there is none, or it is of another shape.
        """
        saved, there = self.saved(folder), self.weights()
        if {name: weight.shape for name, weight in saved.items()} != {
            name: weight.shape for name, weight in there.items()
        }:
            raise CheckpointError(
                f"{folder} holds an adapter of another shape than policies.{folder.name} of its config"
            )
        self.put(saved)

    def put(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Sets the adapter's weights, under the names of PEFT's files."""
        _peft().set_peft_model_state_dict(self.adapter, dict(weights))

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
        """Writes an ordinary PEFT folder, with the tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        config = copy.copy(self.adapter.peft_config["default"])
        config.inference_mode, config.base_model_name_or_path = True, self.source
        config.target_modules = sorted(config.target_modules or ())  # a set, in any order
        config.save_pretrained(folder)
        save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / FILE, {"format": "pt"})
        self.tokenizer.save_pretrained(folder)

    def start(self) -> Model:
        """Returns the base, with which an adapter begins."""
        return self.base


def adapted(
    base: Model, *, rank: int, alpha: float, targets: Sequence[str] = (), seed: int, source: str = "", where: str
) -> Adapted:
    """Returns a model of the base's weights, frozen, and an adapter of its own, which changes nothing yet.

    Args:
        source: what the base is called in the adapter's file.
        rank, alpha: an adapted layer gives W x + (alpha / rank) B A x, with A (rank, in) drawn from the seed and B 0.
        targets: names of the layers that are adapted; none: every linear layer but the output layer.
        where: names the policy in errors.

    Raises:
        ConfigError: no layer is called so.

    Source:
        LoRA, arXiv:2106.09685.
    """
    peft = _peft()
    head = base.net.get_output_embeddings()
    linear = [name for name, part in base.net.named_modules() if isinstance(part, torch.nn.Linear) and part is not head]
    layers = {name.rpartition(".")[2] for name in linear}
    for target in targets:
        if target not in layers:
            raise ConfigError(
                f"{where}.lora.targets names '{target}'{nearest(target, layers)}; linear layers of this network are "
                f"called {', '.join(sorted(layers))}"
            )
    shared = {id(tensor): tensor for tensor in itertools.chain(base.net.parameters(), base.net.buffers())}
    net = copy.deepcopy(base.net, shared)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=list(targets) or "all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[base.device] if base.device.type == "cuda" else []):
        torch.manual_seed(seed)
        try:
            with _quiet(), base.device if base.device.type == "meta" else contextlib.nullcontext():
                adapter = peft.get_peft_model(net, config)
        except ValueError as error:
            raise ConfigError(f"{where}.lora: no adapter fits this network: {first_line(error)}") from error
    adapter.eval()
    whole = {part.name: getattr(base, part.name) for part in fields(Model)}
    return Adapted(**{**whole, "net": net}, adapter=adapter, base=base, source=source)


def merge(base: str, adapter: Path, out: Path) -> None:
    """Writes a whole model, W + (alpha / rank) B A in place of W, from an adapter's folder.

    Raises:
        ConfigError: its base cannot be loaded.
    """
    model = load_model(base, where="the base")
    peft = _peft()
    with _quiet():
        whole = peft.PeftModel.from_pretrained(model.net, adapter).merge_and_unload()
    whole.save_pretrained(out)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(out)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences a warning: PEFT asks transformers by a name that is to go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _peft() -> Any:
    """Returns PEFT, which takes seconds to import: whoever has no adapter does not wait for it."""
    return importlib.import_module("peft")
