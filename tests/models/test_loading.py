"""A model is loaded whole: a weight that its folder lacks is never filled with chance."""

import copy
import errno
import io
import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

from coterie.errors import ConfigError
from coterie.installed import starter_folder
from coterie.models.files import check_modules
from coterie.models.load import load_model, save_model
from coterie.models.shapes import read

EMBEDDING = "model.embed_tokens.weight"


def rewritten(folder: Path, change) -> Path:
    """A copy of the starter, whose weights `change` has made others of."""
    shutil.copytree(starter_folder("starter"), folder)
    weights = change(load_file(folder / "model.safetensors"))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("lost", "first"),
    [("model.layers.1.", "model.layers.1."), ("model.norm.", "model.norm.weight"), ("model.emb", EMBEDDING)],
)
def test_a_folder_without_some_of_its_weights_is_refused(lost, first, tmp_path):
    whole = dict(load_model("starter").net.named_parameters())
    missing = sum(name.startswith(lost) for name in whole)
    folder = rewritten(
        tmp_path / "part", lambda weights: {name: weights[name] for name in weights if not name.startswith(lost)}
    )
    with pytest.raises(ConfigError) as error:
        load_model(str(folder), where="policies.p.model")
    said, is_are = str(error.value), "is" if missing == 1 else "are"
    assert said.startswith(
        f"policies.p.model = '{folder}': {missing} of its {len(whole)} weights {is_are} missing, the first is {first}"
    )
    assert "\n" not in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_hidden_layers": 100_000}, "asks for 100,000 layers of 1 experts"),
        ({"decoder_layers": 100_000}, "asks for 100,000 layers of 1 experts"),
        ({"text_config": {"num_hidden_layers": 900, "num_experts": 1000}}, "asks for 900 layers of 1,000 experts"),
    ],
)
def test_a_config_that_asks_for_modules_without_end_is_refused_before_any_is_made(more, says, tmp_path, monkeypatch):
    folder = rewritten(tmp_path / "deep", lambda weights: weights)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    monkeypatch.setattr(AutoModelForCausalLM, "from_config", None)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    for load in (load_model, lambda source: read(source, "m")):
        with pytest.raises(ConfigError, match=says):
            load(str(folder))


def test_the_librarys_own_configs_are_no_such():
    refused = []
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING:
        try:
            config = kind().to_dict()
        except Exception:
            continue
        try:
            check_modules("m", config)
        except ConfigError:
            refused.append(kind.__name__)
    assert not refused


def test_an_output_layer_that_is_the_embedding_counts_once_under_either_name(tmp_path):
    assert load_model("starter").net.config.tie_word_embeddings
    folder = rewritten(tmp_path / "head", lambda weights: {"lm_head.weight": weights.pop(EMBEDDING), **weights})
    assert load_model(str(folder)).origin == load_model("starter").origin


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Cannot allocate memory (os error 12)"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_a_lack_of_memory_is_told_as_that_and_nothing_is_to_be_deleted(error, monkeypatch, tmp_path):
    def load(*_, **__):
        raise error

    monkeypatch.setattr("coterie.models.load.AutoModelForCausalLM.from_pretrained", load)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for source in ("starter", str(tmp_path / "x.gguf")):
        with pytest.raises(ConfigError, match=r"there is not enough memory to load it, and .* GiB are free") as caught:
            load_model(source, where="policies.a.model")
        assert "delete" not in str(caught.value)
        assert str(caught.value).startswith(f"policies.a.model = '{source}'")


LIMITED = """
import resource, sys
import psutil
from coterie.errors import ConfigError
from coterie.models.load import load_model
load_model("starter")  # loads the libraries
most = psutil.Process().memory_info().vms + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    load_model(sys.argv[1])
except ConfigError as error:
    print(error)
"""


@pytest.mark.slow
def test_under_a_limit_of_address_space_too(tmp_path):
    large = load_model("starter")
    config = copy.deepcopy(large.net.config)
    config.vocab_size, config.tie_word_embeddings = 200_000, False
    large.net = type(large.net)(config)
    save_model(large, tmp_path / "large")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "large")], capture_output=True, text=True, check=True
    )
    assert "there is not enough memory to load it" in done.stdout, done.stderr


def test_names_of_tensors_reach_no_terminal_as_they_are(tmp_path, monkeypatch):
    handler = next(each for each in logging.getLogger("transformers").handlers if type(each) is logging.StreamHandler)
    monkeypatch.setattr(handler, "stream", io.StringIO())
    odd = "\x1b]0;owned\x07\x1b[2J\u202e"
    folder = rewritten(tmp_path / "model", lambda weights: weights | {odd: torch.ones(1)})
    load_model(str(folder))
    err = handler.stream.getvalue()
    assert "owned" in err
    assert not set(odd) - set("[]0;owned2J") & set(err)
