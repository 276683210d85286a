"""Which bubblewrap is started: one that only root or this user can have put there."""

from __future__ import annotations

import os

import pytest

from coterie.sandbox import backends
from coterie.sandbox.backends import bwrap, is_of_others, missing


@pytest.fixture
def ours(tmp_path, monkeypatch):
    """A program of that name in a folder of PATH, where the system has none."""
    file = tmp_path / "bin" / "bwrap"
    file.parent.mkdir(mode=0o755)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    monkeypatch.setattr(os, "defpath", "/nowhere")
    monkeypatch.setenv("PATH", str(file.parent))
    return file


def test_what_the_system_has_comes_before_what_path_names(ours, tmp_path, monkeypatch):
    assert bwrap() == str(ours)
    system = tmp_path / "system" / "bwrap"
    system.parent.mkdir()
    system.symlink_to(ours)
    monkeypatch.setattr(os, "defpath", str(system.parent))
    assert bwrap() == str(system)


def test_a_relative_place_of_path_is_whole(ours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    assert bwrap() == str(ours)


@pytest.mark.parametrize("what", ["the file", "its folder"])
def test_one_that_others_can_write_is_refused(ours, what):
    assert not is_of_others(str(ours))
    (ours if what == "the file" else ours.parent).chmod(0o777)
    assert missing("bubblewrap").startswith(f"{ours} may be written by other users")


def test_one_of_another_user_is_refused_though_linked_to_from_a_sound_place(ours, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if ours.stat().st_uid == 0:
        os.chown(ours, 23456, 23456)
    link = tmp_path / "link"
    link.symlink_to(ours)
    assert is_of_others(str(link))


def test_none_at_all_says_how_to_get_it(ours, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert bwrap() == ""
    assert missing("bubblewrap") == f"bubblewrap is missing; {backends.INSTALL}"
