"""Hostile text of tasks, environments and models: no command and no page passes a control character on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.kernel.safe import command, one_line, plain
from coterie.models.load import save_model
from tests.config.test_wrong_inputs import SMALL
from tests.test_cli import call
from tests.toys import tiny

HOSTILE = "\x1b[2J\x9b31m\rgone\x07\u202egnol\u2028\u200b\x7f"
ENVIRONMENT = """import os

from coterie import Environment, Task
from coterie.kernel.scene import Reply

BAD = "\\x1b[2J\\x9b31m\\rgone\\x07\\u202egnol\\u2028\\u200b\\x7f\\x00"


class Bad(Environment):
    roles = ("a", "b")

    def task(self, split, index):
        return Task(f"{split}-{index}{BAD}", split, query=f"{BAD} {split} {index}", kind=f"{BAD}{index % 2}")

    async def play(self, task, scene):
        for _ in scene.turns(1):
            first = await scene.ask("a", f"pick {BAD} \\ud800 {task.id}", max_tokens=4)
            scene.reward("a", float(len(first.text)), name=f"length {BAD}")
            scene.metric(f"metric {BAD} \\ud800", 1.0)
            await scene.ask("b", f"match {first.text}", max_tokens=4)
            scene.reward("b", float(scene.rng.random()), name=BAD)
            scene.team_reward(1.0, name=f"{BAD}\\ud800")
        if os.path.exists(__file__ + ".bug"):
            raise KeyError(f"{BAD} \\ud800")
        if os.path.exists(__file__ + ".mistake"):
            raise AttributeError(f"{BAD} \\ud800", name=BAD, obj=first)
        scene.fail(f"{BAD} \\ud800 {first.text}")

    def note(self, role, reply):
        return f"{BAD} {role} {len(reply.text)}"
"""


def steers(text: str) -> set[str]:
    """The characters of a text that are not shown as themselves, but for line breaks and tabs."""
    return {char for char in text if not char.isprintable() and char not in "\n\t"}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A run of an environment whose every word is hostile."""
    home = tmp_path_factory.mktemp("safe")
    save_model(tiny(scale=2.0), home / "model")
    (home / "bad.py").write_text(ENVIRONMENT, encoding="utf-8")
    sets = [*SMALL(home), "--set", "memory.mode=on", "--set", "eval.tasks=4"]
    code, out, err = call("train", str(home / "bad.py"), "--out", str(home / "run"), *sets)
    assert code == 0, err
    assert not steers(out + err)
    return home


COMMANDS = {
    "a tree": ("play", "RUN", "--tree", "--step", "1"),
    "an episode": ("play", "RUN"),
    "an evaluation": ("eval", "RUN"),
    "a sampled evaluation": ("eval", "RUN", "--sampled", "2", "--mute", "a"),
    "an evaluation for machines": ("eval", "RUN", "--json"),
    "a memory": ("memory", "RUN"),
    "a check": ("check", "ENV", "--tasks", "1"),
    "a check for machines": ("check", "ENV", "--tasks", "1", "--json"),
    "a dry run": ("train", "ENV", "--dry-run"),
    "an unknown role": ("play", "RUN", "--as", HOSTILE),
    "an unknown environment": ("train", HOSTILE),
    "an unknown file": ("train", f"{HOSTILE}.toml"),
    "a wrong setting": ("train", "ENV", "--set", f"train.device={HOSTILE}"),
    "an unknown option": ("train", f"--{HOSTILE}"),
    "a word too many": ("list", "engines", HOSTILE),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_passes_a_control_character_on(name, home):
    words = {"RUN": str(home / "run"), "ENV": str(home / "bad.py")}
    _, out, err = call(*(words.get(word, word) for word in COMMANDS[name]))
    assert out + err
    assert not steers(out + err)
    (out + err).encode()
    if "--json" in COMMANDS[name]:
        json.loads(out)


def test_no_page_holds_a_control_character(home):
    code, out, err = call("report", str(home / "run"), "--tasks", "2")
    assert code == 0, err
    page = (home / "run/report.html").read_text(encoding="utf-8")
    assert not steers(out + err + page)
    assert "\\x1b[2J" in page


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "code"), [("bug", 1), pytest.param("mistake", 2, marks=pytest.mark.long)])
def test_what_an_exception_says_is_shown_as_text(kind, code, home):
    """A bug with its traceback, a mistake in its line, in a terminal that knows ASCII alone too."""
    flag = home / f"bad.py.{kind}"
    flag.touch()
    try:
        for encoding in ("utf-8", "ascii"):
            done = subprocess.run(
                [sys.executable, "-m", "coterie.cli", "play", str(home / "run")],
                check=False,
                capture_output=True,
                env=os.environ | {"PYTHONIOENCODING": encoding},
            )
            said = (done.stdout + done.stderr).decode(encoding)
            assert done.returncode == code, said
            assert ("Traceback" in said) == (kind == "bug")
            assert "\\x1b[2J" in said
            assert not steers(said)
    finally:
        flag.unlink()


def test_a_table_on_a_terminal_shows_text_alone():
    import io

    from rich.table import Table

    from coterie.report.terminal import SafeConsole

    console = SafeConsole(file=io.StringIO(), width=200)
    table = Table.grid()
    table.add_row(HOSTILE)
    console.print(table)
    console.print(HOSTILE)
    written = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert not steers(written)
    assert written.count("\\x1b[2J") == 2


def test_text_is_kept_where_it_is_harmless():
    assert plain("a\tb\nc é 漢 🙂") == "a\tb\nc é 漢 🙂"
    assert plain("\x1b[2J\ud800\r") == "\\x1b[2J\\xd800\\x0d"
    assert plain(plain(HOSTILE)) == plain(HOSTILE)
    assert one_line(" a  b\n   c\r") == "a  b c"


def test_a_command_is_quoted_for_a_shell():
    assert command("train", "--resume", Path("runs/my run")) == "coterie train --resume 'runs/my run'"
    assert command("eval", "runs/it's") == "coterie eval 'runs/it'\"'\"'s'"


def test_a_report_that_finds_no_room_leaves_the_page_that_was_there(home, monkeypatch):
    page = home / "run/page.html"
    page.write_text("whole")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = call("report", str(home / "run"), "--tasks", "0", "--out", str(page))
    assert code == 2
    assert err.count("\n") == 1
    assert "No space left on device; make room and choose another place with --out" in err
    assert page.read_text() == "whole"
    assert not list(page.parent.glob(".page*"))
