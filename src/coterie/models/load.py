"""Models and tokenizers: loaded from a folder or by Hugging Face id, saved as ordinary folders."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download, try_to_load_from_cache
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import disable_progress_bar, get_logger

from coterie.errors import CheckpointError, ConfigError, first_line, nearest
from coterie.installed import starter_folder, starters
from coterie.kernel.safe import plain
from coterie.models import attention, hub
from coterie.models.copies import copied, fingerprint
from coterie.models.files import ADAPTER_CONFIG, GGUF, check_size, check_there
from coterie.models.halves import keep_sums
from coterie.models.lean import LARGE
from coterie.models.named import NAMED
from coterie.models.refused import refuse_for_memory, refuse_missing
from coterie.models.templates import render
from coterie.models.trial import check_tokenizer

Head = Callable[[torch.Tensor], torch.Tensor]
"""A function from hidden states to logits."""
Read = Callable[[torch.Tensor, Head], torch.Tensor]
"""A function from the last hidden states, and the output layer, to what is wanted of them."""
Finish = Callable[[torch.Tensor], torch.Tensor]
"""A function from logits to what a network gives for them: capped or scaled."""
UNLIMITED = 1 << 30
"""Tokens of context of a model where nothing limits them, in effect."""


def no_finish(logits: torch.Tensor) -> torch.Tensor:
    """Returns logits as the output layer gives them."""
    return logits


disable_progress_bar()  # loading is quick or shown by the caller


def _plainly(record: logging.LogRecord) -> bool:
    """Makes what the library logs safe on a terminal: it quotes names of tensors, which may be anybody's."""
    record.msg, record.args = plain(COLOURS.sub("", record.getMessage())), ()
    return True


COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Codes with which the library colours its reports."""
get_logger()  # which makes its handlers
for handler in logging.getLogger("transformers").handlers:
    handler.addFilter(_plainly)


@dataclass(slots=True)
class Model:
    """A causal language model with its tokenizer, ready to sample and to train.

    stop_ids: tokens that end a reply. vocabulary: ids from here on are padding of the embedding:
    they have no text and are never sampled. context: tokens of prompt and reply together. finish: what the network does
    to its logits after the output layer.

    lean: a small network of the usual shape is decoded, and trained, without its modules. graphs: on CUDA it is decoded
    by a recorded graph. pads: prompts of several lengths may be decoded side by side. packs: rows that share a prefix
    may be computed in one row. splits: their attention by parts, without a mask. `coterie.checks.families` finds out.
    """

    net: PreTrainedModel
    tokenizer: Any
    stop_ids: frozenset[int]
    vocabulary: int
    context: int
    finish: Finish = no_finish
    lean: bool = True
    graphs: bool = True
    packs: bool = True
    splits: bool = False
    pads: bool = True

    @property
    def config(self) -> Any:
        """Config of the text network."""
        return self.net.config.get_text_config()

    @property
    def family(self) -> str:
        """Name of the architecture."""
        return self.net.config.model_type

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.net.device

    @property
    def size(self) -> int:
        """Number of parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self.net.parameters())

    @property
    def shares(self) -> bool:
        """True if the common beginning of several prompts is computed once for all of them.

        Small networks gain little, and keep the numbers that their runs had.
        """
        return self.size > LARGE

    @property
    def trained(self) -> list[torch.nn.Parameter]:
        """Weights that are trained."""
        return [weight for weight in self.net.parameters() if weight.requires_grad]

    @property
    def origin(self) -> str:
        """Digest of weights and tokenizer: what a policy begins with, wherever it was loaded from."""
        return fingerprint(self)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Returns the weights that a checkpoint keeps of the model."""
        return self.net.state_dict()

    def saved(self, folder: Path) -> Mapping[str, torch.Tensor]:
        """Returns the weights that a checkpoint's folder keeps, under the names of `weights`."""
        return load_model(str(folder), where=folder.name).weights()

    def take(self, folder: Path) -> None:
        """Loads the weights of a checkpoint's folder.

        Raises:
            CheckpointError: they are of another shape.
        """
        try:
            self.put(self.saved(folder))
        except RuntimeError as error:
            raise CheckpointError(
                f"{folder} has other shapes than policies.{folder.name}.model of its config; the model it started from "
                "has changed"
            ) from error

    def put(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Sets the weights, under the names of `weights`."""
        self.net.load_state_dict(dict(weights))

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
        """Writes a checkpoint's folder: an ordinary one of Hugging Face."""
        save_model(self, folder, weights)

    def start(self) -> Model:
        """Returns a frozen copy of the model as it is now, to which a trained one is held."""
        return replace(self, net=copied(self.net).requires_grad_(False))

    def read(self, ids: torch.Tensor, read: Read, **inputs: Any) -> torch.Tensor:
        """Runs one forward of the whole network, in which `read` stands in the place of its output layer.

        So the layer is asked for what is wanted alone, inside the one call that sharded networks allow.

        Args:
            ids: (B, T).
            read: called with the last hidden states (B, T, H) and what makes logits of some.

        Returns:
            what `read` returns.
        """
        net: Any = self.net
        head: Any = net.get_output_embeddings()
        forward, taken = head.forward, list[torch.Tensor]()

        def instead(hidden: torch.Tensor) -> torch.Tensor:
            taken.append(read(hidden, lambda states: self.finish(forward(states))))
            return taken[0]

        head.forward = instead
        try:
            net(input_ids=ids, use_cache=False, **inputs)
        finally:
            del head.forward
        return taken[0]


def load_model(source: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32, where: str = "model") -> Model:
    """Returns a model in evaluation mode (no dropout).

    Args:
        source: a folder, a .gguf file, a Hugging Face id, a name such as smollm2, or the name of a starter.
        dtype: of its weights; trained ones are float32.
        where: names the setting in errors.

    Raises:
        ConfigError: nothing loadable is there, a weight is missing, or it is not a causal language model.
    """
    folder, name = located(source, where)
    named = (*NAMED, *starters())
    if folder.suffix == GGUF:
        from coterie.models.gguf import read_gguf

        net, tokenizer = read_gguf(folder, dtype, where)
        return prepare(net.to(device), tokenizer, where)  # pyright: ignore[reportArgumentType]
    try:
        if not folder.exists() and not hub.answers():  # otherwise the library tries each of its files five times
            name = snapshot_download(source, local_files_only=True)
        if source not in named:
            said = _said(name)
            check_size(where, said)
            check_tokenizer(said, f"{where} = '{source}'")
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, trust_remote_code=False, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except ConfigError:
        raise
    except Exception as error:  # whatever a damaged config makes of the library's own code
        refuse_for_memory(error, f"{where} = '{source}'")
        reason = first_line(error).split(". ")[0]
        if source in NAMED:
            raise ConfigError(f"{where} = '{source}': it cannot be loaded ({reason}); {_again(folder)}") from error
        raise ConfigError(
            f"{where} = '{source}': no causal language model could be loaded from there"
            f"{nearest(source, named)}; give {', '.join(map(repr, named))}, a folder or a Hugging Face id ({reason})"
        ) from error
    network, loading = loaded
    advice = _again(folder) if source in NAMED else "its copy may be incomplete, get it again"
    refuse_missing(network, loading["missing_keys"], f"{where} = '{source}'", advice)
    return prepare(network.to(device), tokenizer, where)


def _said(name: str) -> Path:
    """Returns the folder of a model's config and tokenizer; of the hub, it is here then."""
    return Path(name) if Path(name).is_dir() else Path(snapshot_download(name, allow_patterns=["*.json", "*.jinja"]))


def _again(folder: Path) -> str:
    """Returns the advice for a damaged folder of a model that is known by a short name."""
    return f"delete {folder}, and it is made again"


def located(source: str, where: str) -> tuple[Path, str]:
    """Returns the place of a model, if it is here, and its name for the library.

    Raises:
        ConfigError: it cannot be a model.
    """
    if not source:
        raise ConfigError(
            f"{where}: this environment comes with no model to start from; name a folder or a Hugging Face id of one "
            "that knows its words, or make one: coterie sft"
        )
    if source in starters() and (Path(source) / "config.json").exists():
        raise ConfigError(
            f"{where} = '{source}' is a model that is shipped, but a folder of that name is here too; "
            f"write './{source}' for the folder, or rename it"
        )
    if source in NAMED and (Path(source) / "config.json").exists():
        raise ConfigError(
            f"{where} = '{source}' is a model that has this name, but a folder of that name is here too; write "
            f"'./{source}' for the folder, or rename it"
        )
    if source in NAMED:
        from coterie.models.obtain import obtain

        folder = obtain(source, where)
    else:
        folder = starter_folder(source) if source in starters() else Path(source)
    check_there(where, source)
    if folder.is_dir() and not (folder / "config.json").exists():
        if source in NAMED:
            raise ConfigError(f"{where} = '{source}': its config.json is missing; {_again(folder)}")
        adapter = (folder / ADAPTER_CONFIG).exists()
        if files := sorted(folder.glob(f"*{GGUF}")):
            raise ConfigError(f"{where} = '{source}': this folder holds a GGUF file; name that: {files[0]}")
        raise ConfigError(
            f"{where} = '{source}': this folder holds "
            + (
                "an adapter: kind = 'lora' trains it, 'frozen' plays it"
                if adapter
                else "no model (config.json is missing)"
            )
        )
    if folder.is_dir():
        check_size(where, folder)
    return folder, str(folder) if folder.exists() else source


WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Names of weight files, of which a model's folder has one."""


def weights_here(source: str, where: str) -> bool:
    """Returns True if a model's weights are on this machine, so that loading it downloads nothing.

    Raises:
        ConfigError: it cannot be a model.
    """
    folder, name = located(source, where)
    if folder.is_dir():
        return any((folder / file).exists() for file in WEIGHTS)
    return any(isinstance(try_to_load_from_cache(name, file), str) for file in WEIGHTS)


def prepare(net: PreTrainedModel, tokenizer: Any, where: str = "model") -> Model:
    """Returns a network and a tokenizer as a Model.

    Raises:
        ConfigError: no stop token, or logits that are changed after the output layer.
    """
    stop = net.generation_config.eos_token_id if net.generation_config else None
    ends = {*(stop if isinstance(stop, list) else [stop]), tokenizer.eos_token_id} - {None}
    ends |= {turn_end(tokenizer)} - {None}
    if not ends:
        raise ConfigError(f"{where}: neither tokenizer nor generation_config names an end-of-turn token")
    net.eval()
    _disable_noise(net)
    keep_sums(net)
    model = Model(
        net=net,
        tokenizer=tokenizer,
        stop_ids=frozenset(ends),
        vocabulary=min(len(tokenizer), net.config.get_text_config().vocab_size),
        context=context_of(net.config.get_text_config()),
        splits=attention.install(net),
    )
    model.finish = _find_finish(model, where)
    return model


def turn_end(tokenizer: Any) -> int | None:
    """Returns the special token that a chat template writes after a reply, if it writes one."""
    if not tokenizer.chat_template:
        return None
    reply = "8341"
    try:
        text = render(tokenizer, [{"role": "user", "content": "1"}, {"role": "assistant", "content": reply}])
    except TemplateError:  # it may refuse; then the tokenizer's own end is known
        return None
    after = tokenizer(text.rpartition(reply)[2], add_special_tokens=False)["input_ids"]
    token = tokenizer.added_tokens_decoder.get(after[0]) if after else None
    return after[0] if token is not None and token.special else None


def context_of(config: Any) -> int:
    """Returns the maximum tokens of prompt and reply; a network without positions has no limit of its own."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    return next((limit for name in names if (limit := getattr(config, name, None))), UNLIMITED)


def _disable_noise(net: PreTrainedModel) -> None:
    """Switches off all noise, in training mode too: what is trained must be what was sampled."""
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if isinstance(value, float) and any(noise in name for noise in ("dropout", "layerdrop", "jitter")):
                setattr(module, name, 0.0)


def _finishes(net: Any) -> Iterator[Finish]:
    """Yields what families of networks are known to do to their logits, as far as this one's config speaks of it."""
    config = net.config.get_text_config()
    if cap := getattr(config, "final_logit_softcapping", None):
        yield lambda logits: cap * torch.tanh(logits / cap)
    for name in ("logits_scaling", "logit_scale", "lm_head_multiplier"):
        if factor := getattr(config, name, None):
            yield lambda logits, factor=factor: logits * factor
            yield lambda logits, factor=factor: logits / factor
    yield no_finish


@torch.no_grad()
def _find_finish(model: Model, where: str) -> Finish:
    """Returns the function that the network applies to its logits after the output layer.

    Raises:
        ConfigError: it is none of what is known.
    """
    net: Any = model.net
    head: Any = net.get_output_embeddings()
    if head is None:
        raise ConfigError(f"{where}: models of the family '{model.family}' have no output layer; it is not supported")
    logits = torch.linspace(-50, 50, model.config.vocab_size, device=model.device)
    head.forward = lambda hidden: logits.expand(*hidden.shape[:-1], -1)
    try:
        whole = net(input_ids=torch.arange(4, device=model.device)[None], use_cache=False).logits[0, -1]
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(
            f"{where}: models of the family '{model.family}' cannot be run as a language model: {first_line(error)}"
        ) from error
    finally:
        del head.forward
    for finish in _finishes(net):
        if whole.shape == logits.shape and torch.allclose(finish(logits), whole.float(), rtol=1e-4, atol=1e-4):
            return finish
    raise ConfigError(
        f"{where}: models of the family '{model.family}' change their logits after the output layer in a way that is "
        "not known; it is not supported"
    )


def layers_of(net: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the layers that a network may be cut into, as its family names them."""
    kinds = set(getattr(net, "_no_split_modules", None) or ())
    return [part for part in net.modules() if type(part).__name__ in kinds]


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
