"""Models and tokenizers: loaded from a folder or by Hugging Face id, saved as ordinary folders."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from huggingface_hub import snapshot_download
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from coterie.errors import ConfigError
from coterie.kernel.environment import STARTERS
from coterie.models import hub

Head = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states to logits."""
Read = Callable[[torch.Tensor, Head], torch.Tensor]
"""What is taken of the last hidden states, with the output layer."""

disable_progress_bar()  # loading is quick or shown by the caller


@dataclass(slots=True)
class Model:
    """A causal language model with its tokenizer, ready to sample and to train.

    stop_ids: tokens that end a reply. vocabulary: ids from here on are padding of the embedding:
    they have no text and are never sampled. context: tokens of prompt and reply together.
    """

    net: PreTrainedModel
    tokenizer: Any
    stop_ids: frozenset[int]
    vocabulary: int
    context: int

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.net.device

    @property
    def size(self) -> int:
        """How many parameters it has, tied ones once."""
        return sum(parameter.numel() for parameter in self.net.parameters())

    def read(self, ids: torch.Tensor, read: Read, **inputs: Any) -> torch.Tensor:
        """One forward of the whole network, in which `read` stands in the place of its output layer.

        So the layer is asked for what is wanted alone, inside the one call that sharded networks allow.

        Args:
            ids: (B, T).
            read: called with the last hidden states (B, T, H) and the output layer's own forward.

        Returns:
            what `read` returns.
        """
        head: Any = self.net.get_output_embeddings()
        forward = head.forward
        head.forward = lambda hidden: read(hidden, forward)
        try:
            net: Any = self.net
            return net(input_ids=ids, use_cache=False, **inputs).logits
        finally:
            del head.forward


def load_model(source: str, *, device: str = "cpu", where: str = "model") -> Model:
    """A model in float32, in evaluation mode (no dropout).

    Args:
        source: a folder, a Hugging Face id, or the name of a starter.
        where: names the setting in errors.

    Raises:
        ConfigError: nothing loadable is there, or it is not a causal language model with a chat template.
    """
    if not source:
        raise ConfigError(
            f"{where}: this environment comes with no model to start from; name a folder or a Hugging Face id of one "
            "that knows its words, or make one: coterie sft"
        )
    if source in STARTERS and (Path(source) / "config.json").exists():
        raise ConfigError(
            f"{where} = '{source}' is a model that is shipped, but a folder of that name is here too; "
            f"write './{source}' for the folder, or rename it"
        )
    folder = starter_folder(source) if source in STARTERS else Path(source)
    if folder.is_absolute() and not folder.exists():
        raise ConfigError(f"{where} = '{source}': this folder does not exist; put it back, or name another model")
    name = str(folder) if folder.exists() else source
    if folder.is_dir() and not (folder / "config.json").exists():
        raise ConfigError(f"{where} = '{source}': this folder holds no model (config.json is missing)")
    try:
        if not folder.exists() and not hub.answers():  # otherwise the library tries each of its files five times
            name = snapshot_download(source, local_files_only=True)
        net = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = shorten(str(error).strip().split("\n")[0].split(". ")[0], 160, placeholder=" …")
        raise ConfigError(
            f"{where} = '{source}': no causal language model could be loaded from there; "
            f"give {', '.join(map(repr, STARTERS))}, a folder or a Hugging Face id ({reason})"
        ) from error
    network: Any = net
    return prepare(network.to(device), tokenizer, where)


def prepare(net: PreTrainedModel, tokenizer: Any, where: str = "model") -> Model:
    """A network and a tokenizer as a Model.

    Raises:
        ConfigError: no chat template, no stop token, or logits that are changed after the output layer.
    """
    if not tokenizer.chat_template:
        raise ConfigError(f"{where}: the tokenizer has no chat template; use an instruct model")
    stop = net.generation_config.eos_token_id if net.generation_config else None
    ends = {*(stop if isinstance(stop, list) else [stop]), tokenizer.eos_token_id} - {None}
    if not ends:
        raise ConfigError(f"{where}: neither tokenizer nor generation_config names an end-of-turn token")
    net.eval()
    _disable_dropout(net)
    model = Model(
        net=net,
        tokenizer=tokenizer,
        stop_ids=frozenset(ends),
        vocabulary=min(len(tokenizer), net.config.get_text_config().vocab_size),
        context=net.config.get_text_config().max_position_embeddings,
    )
    _check_head(model, where)
    return model


def _disable_dropout(net: PreTrainedModel) -> None:
    """What is trained must be what was sampled: no dropout, in training mode either."""
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if "attention_dropout" in vars(module):
            vars(module)["attention_dropout"] = 0.0


@torch.no_grad()
def _check_head(model: Model, where: str) -> None:
    """Logits are read off the output layer by `Model.read`; a network that does more to them is refused."""
    said: list[torch.Tensor] = []

    def read(hidden: torch.Tensor, head: Head) -> torch.Tensor:
        said.append(head(hidden))
        return said[-1]

    probe = torch.arange(4, device=model.device)[None]
    whole = model.read(probe, read)
    if not torch.allclose(said[0].float(), whole.float(), atol=1e-4, rtol=1e-4):
        raise ConfigError(
            f"{where}: {type(model.net).__name__} changes its logits after the output layer; it is not supported"
        )


def fingerprint(model: Model) -> str:
    """A digest of weights and tokenizer: what a policy begins with, wherever it was loaded from."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.net.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.contiguous().cpu().flatten().view(torch.uint8).numpy())
    tokenizer = model.tokenizer
    backend = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    shape = model.net.config.to_json_string(), sorted(model.stop_ids), model.vocabulary, model.context
    digest.update(repr((backend, tokenizer.chat_template, shape)).encode())
    return digest.hexdigest()[:12]


def checkpoint_activations(net: PreTrainedModel) -> None:
    """Has a network compute its layers again in the backward pass, in training mode."""
    enable = (
        getattr(net, "activation_checkpointing_enable", None) or net.gradient_checkpointing_enable
    )  # the name that transformers had before 5.20
    enable()


def save_model(model: Model, folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> None:
    """Writes an ordinary Hugging Face folder.

    Args:
        weights: None: those that the network has.
    """
    model.net.save_pretrained(folder, state_dict=None if weights is None else dict(weights))
    model.tokenizer.save_pretrained(folder)


def starter_folder(name: str) -> Path:
    """Where a shipped starter lies."""
    return Path(str(resources.files("coterie") / "starters" / STARTERS[name]))


def memory_text(sources: Mapping[str, str]) -> str:
    """A line a policy: parameters, and the memory that training takes, as TOML comments.

    Weights, gradient and AdamW's two averages in float32 are 16 bytes a parameter; activations come on top.
    """
    lines: list[str] = []
    for name, source in sources.items():
        size = load_model(source, where=f"policies.{name}.model").size
        lines.append(
            f"# policy {name}: {size / 1e6:.2f} million parameters, {16 * size / 2**30:.2f} GiB and activations"
        )
    return "\n".join(lines)
