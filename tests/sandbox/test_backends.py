"""Which bubblewrap is started, and by which path: programs of models run in what is found here."""

from __future__ import annotations

import os
import shutil

import pytest

from coterie_worlds.sandbox import Box, backends
from coterie_worlds.sandbox.backends import missing, path_of
from coterie_worlds.sandbox.worker import SandboxWorker


@pytest.fixture
def ours(tmp_path, monkeypatch):
    """A program of that name in a folder of PATH, where the system has none."""
    file = tmp_path / "bin" / "bwrap"
    file.parent.mkdir()
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    monkeypatch.setattr(os, "defpath", "/nowhere")
    monkeypatch.setenv("PATH", f"/nowhere:{file.parent}")
    return file


def test_what_the_system_has_comes_before_what_path_names(ours, tmp_path, monkeypatch):
    assert path_of("bwrap") == str(ours)
    system = tmp_path / "system" / "bwrap"
    system.parent.mkdir()
    system.symlink_to(ours)
    monkeypatch.setattr(os, "defpath", str(system.parent))
    assert path_of("bwrap") == str(system)


@pytest.mark.parametrize("path", ["bin", ".", "", "bin:.", ":"])
def test_none_of_the_working_folder_is_taken(ours, monkeypatch, path):
    monkeypatch.chdir(ours.parent.parent if path.startswith("bin") else ours.parent)
    monkeypatch.setenv("PATH", path)
    assert path_of("bwrap") == ""
    assert missing("bubblewrap") == f"bubblewrap is missing; {backends.INSTALL}"


@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
def test_what_is_found_is_what_is_started(tmp_path, monkeypatch):
    """A sandbox has no PATH, so a name alone would be looked for elsewhere."""
    mine = tmp_path / "bwrap"
    real = shutil.which("bwrap")
    mine.write_text(f'#!/bin/sh\ntouch {tmp_path}/started\nexec {real} "$@"\n')
    mine.chmod(0o755)
    monkeypatch.setattr(os, "defpath", "/nowhere")  # where a program without PATH is looked for
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    worker = SandboxWorker(Box())
    worker.begin()
    worker.close()
    assert (tmp_path / "started").exists()
