"""A model is loaded whole: a weight that its folder lacks is never filled with chance."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from coterie.errors import ConfigError
from coterie.models.load import load_model, starter_folder

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


def test_an_output_layer_that_is_the_embedding_counts_once_under_either_name(tmp_path):
    assert load_model("starter").net.config.tie_word_embeddings
    folder = rewritten(tmp_path / "head", lambda weights: {"lm_head.weight": weights.pop(EMBEDDING), **weights})
    assert load_model(str(folder)).origin == load_model("starter").origin
