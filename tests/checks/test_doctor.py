"""coterie doctor."""

import builtins
import shutil
from importlib import metadata
from importlib.util import find_spec

from coterie.checks.doctor import examine
from coterie.registry import ENGINES


def test_it_looks_at_every_package_extra_and_engine():
    found = {(one.area, one.name): one for one in examine()}
    assert found["core", "torch"].text == metadata.version("torch")
    assert found["core", "torch"].ok
    assert ("extras", "oracles") in found
    assert {name for area, name in found if area == "engines"} == set(ENGINES)
    assert all(one.ok for one in found.values() if one.area == "core")
    assert found["engines", "transformers"].ok
    assert found["engines", "vllm"].ok == bool(find_spec("vllm"))
    assert {name for area, name in found if area == "sandbox"} == {"bubblewrap", "process"}


def test_what_is_missing_or_old_says_what_to_install(monkeypatch):
    version = metadata.version

    def other(name: str) -> str:
        if name == "trl":
            raise metadata.PackageNotFoundError(name)
        return "1.0" if name == "transformers" else version(name)

    monkeypatch.setattr(metadata, "version", other)
    found = {one.name: one for one in examine() if one.area != "engines"}
    assert not found["oracles"].ok
    assert "trl not installed" in found["oracles"].text
    assert found["oracles"].advice == "where wanted: pip install 'coterie[oracles]'"
    assert (found["transformers"].ok, found["transformers"].text) == (False, "1.0")
    assert found["transformers"].advice.startswith("pip install 'transformers<6,>=5")


def test_it_answers_without_torch(monkeypatch):
    load = builtins.__import__

    def without_torch(name, *args, **kwargs):
        if name == "torch":
            raise ImportError("No module named 'torch'")
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    found = {one.name: one for one in examine()}
    assert (found["accelerator"].ok, found["accelerator"].advice) == (False, "see torch above")


def test_without_bubblewrap_it_says_how_to_install_it(monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **kwargs: None if name == "bwrap" else which(name, **kwargs))
    found = {one.name: one for one in examine() if one.area == "sandbox"}
    assert not found["bubblewrap"].ok
    assert "apt-get install bubblewrap" in found["bubblewrap"].advice
    assert found["process"].ok
