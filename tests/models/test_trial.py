"""A tokenizer that may be anybody's is tried before it is loaded: what never ends or grows is refused by one line."""

import json
import shutil

import pytest

from coterie.errors import ConfigError
from coterie.installed import starter_folder
from coterie.models import shapes, trial
from coterie.models.load import load_model
from coterie.models.trial import check_tokenizer, own_signs
from coterie.view import shelf


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(starter_folder("starter-tally"), tmp_path / "model")


def changed(folder, **parts):
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
TWICE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 64}
REPLACE = {"type": "Replace", "content": "b"}
BOMBS = {
    "pattern": {"pre_tokenizer": SPLIT | {"pattern": {"Regex": "(a+)+[^a]"}}},
    "decodes": {
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Fuse"}, REPLACE | {"pattern": {"Regex": "(?:a|a){20}(?!.)"}}],
        }
    },
    "one sign": {"normalizer": REPLACE | {"pattern": {"Regex": "(?:q|q){20}(?!.)"}}},
    "an escape": {"normalizer": REPLACE | {"pattern": {"Regex": r"(?:\x{71}|\x{71}){20}(?!.)"}}},
    "a script": {"normalizer": REPLACE | {"pattern": {"Regex": r"(?:\p{Hebrew}|\p{Hebrew}){20}(?!.)"}}},
    "grows": {"normalizer": {"type": "Sequence", "normalizers": [TWICE] * 6}},
}


@pytest.mark.parametrize("name", BOMBS)
def test_one_that_takes_too_much_is_refused(name, folder):
    changed(folder, **BOMBS[name])
    with pytest.raises(ConfigError, match=r"^model = '.*model': its tokenizer cannot be used: it takes more than "):
        load_model(str(folder))


def test_the_signs_of_a_pattern_are_found_in_whatever_way_it_names_them():
    found = own_signs(r"(q|\x72|\u0073|\x{74}|\165|[\p{Hebrew}]|\x{ffffff}|\s+$)")
    assert found == {*"qrstuxusp0237461565fHebrw", "א"}


def test_one_that_is_honest_is_tried_once(folder, monkeypatch):
    changed(folder, padding=None)
    check_tokenizer(folder, "m")
    monkeypatch.setattr(trial, "Apart", None)
    check_tokenizer(folder, "m")
    load_model("starter-tally")  # ours are not tried
    changed(folder, truncation={"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0})
    with pytest.raises(TypeError):
        check_tokenizer(folder, "m")


def test_one_that_is_damaged_says_so(folder):
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ConfigError, match="its tokenizer cannot be used: "):
        load_model(str(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.json"])
def test_a_file_without_end_is_not_read(name, folder, monkeypatch):
    with (folder / name).open("r+b") as file:
        file.truncate(trial.LARGEST + 1)
    with pytest.raises(ConfigError, match=r"has more than .* bytes"):
        load_model(str(folder))


def test_every_place_that_loads_one_tries_it(folder):
    changed(folder, **BOMBS["grows"])
    with pytest.raises(ConfigError, match="its tokenizer cannot be used: it takes more than"):
        shapes.read(str(folder), "m")
    file = folder / "tokenizer.json"
    assert shelf._words(file, shelf.stamp_of(file))(5) == "<5>"
