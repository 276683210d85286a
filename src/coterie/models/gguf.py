"""Models in GGUF files, as llama.cpp keeps them: read with their numbers in full, and written as ordinary folders."""

from __future__ import annotations

import contextlib
import errno
import io
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from coterie.errors import ConfigError, first_line
from coterie.models.refused import refuse_for_memory, refuse_missing

MAGIC = b"GGUF"


def read_gguf(file: Path, dtype: torch.dtype, where: str) -> tuple[PreTrainedModel, Any]:
    """Returns the network of a GGUF file, dequantised, and its tokenizer.

    Raises:
        ConfigError: the file is no such model, is damaged, or lacks weights.
    """
    try:
        with file.open("rb") as begin:
            magic = begin.read(len(MAGIC))
    except OSError as error:
        raise ConfigError(f"{where} = '{file}': cannot be read: {error.strerror}") from error
    if magic != MAGIC:
        raise ConfigError(f"{where} = '{file}': this is no GGUF file; name a model folder, or a file of llama.cpp's")
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar a tensor
            read: Any = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=dtype, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except ImportError as error:
        raise ConfigError(f"{where} = '{file}': reading GGUF needs a package: pip install gguf") from error
    except Exception as error:  # whatever a damaged file makes of the libraries' own code
        refuse_for_memory(error, f"{where} = '{file}'")
        raise ConfigError(
            f"{where} = '{file}': this GGUF file cannot be read ({first_line(error)}); its copy may be damaged, or its "
            "architecture is not one that transformers reads from GGUF"
        ) from error
    network, loading = read
    refuse_missing(network, loading["missing_keys"], f"{where} = '{file}'", "its copy may be incomplete, get it again")
    network.hf_quantizer = None  # its numbers are whole now, and it can be trained and saved as any other
    del network.config.quantization_config
    network.config._name_or_path = ""  # noqa: SLF001
    return network, tokenizer


def write_folder(file: Path, folder: Path, where: str) -> None:
    """Writes a GGUF file's model as an ordinary folder of Hugging Face, with weights in float32.

    Raises:
        ConfigError: the file is no such model, is damaged, or has weights that are not finite.
        OSError: the folder cannot be written.
    """
    net, tokenizer = read_gguf(file, torch.float32, where)
    for name, weight in net.named_parameters():
        if not weight.isfinite().all():
            raise ConfigError(
                f"{where} = '{file}': its weight {name} is not finite; its copy may be damaged, get it again"
            )
    try:
        net.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # where a disk is full, the libraries' Rust code raises classes of its own
        raise OSError(errno.EIO, first_line(error)) from error
