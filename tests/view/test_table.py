"""An episode with a person in it, and one that is answered otherwise, without a browser."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from coterie.errors import ConfigError
from coterie.kernel.scene import Reply
from coterie.protocol.chat import RequestRefused
from coterie.view.app import Viewer, _wanted
from coterie.view.pages import Site
from coterie.view.shelf import Shelf
from coterie.view.table import EpisodeOptions, Sitting
from tests.toys import Simultaneous, scripted


def sitting(seat: str) -> Sitting:
    play = scripted(Simultaneous(), lambda role, prompt, rng: f"{role} says {prompt[-1]}")
    made = Sitting("0", EpisodeOptions(Path(), seat=seat), play, play.start(play.task("test", 0)), 0)
    made.go_on()
    return made


def replies(of: Sitting) -> list[tuple[int, Reply]]:
    return list(of.log.replies())


def test_beside_a_person_others_say_what_they_would():
    mine = sitting("a")
    assert list(mine.asked) == ["a"]
    assert mine.point is not None
    mine.answer(0, {"a": "mine"})
    said = {reply.role: reply.text for point, reply in replies(mine) if point == 0}
    assert said == {"a": "mine", "b": "b says  "}
    with pytest.raises(ConfigError, match="not what is asked now"):
        mine.answer(0, {"a": "again"})


def test_what_is_left_as_it_was_is_the_reply_that_was_said_with_its_tokens():
    whole = sitting("")
    fork = whole.fork(0, "x")
    assert sorted(fork.asked) == ["a", "b"]
    fork.answer(0, {"a": "other", "b": "b says  "})
    before, after = ({reply.role: reply for point, reply in replies(each) if point == 0} for each in (whole, fork))
    assert not fork.meant, "at later questions nothing was said before"
    assert after["b"] == before["b"]
    assert after["a"] == Reply("a", "other")
    assert replies(whole) == replies(sitting("")), "the first one is as it was"
    with pytest.raises(ConfigError, match="no decision 99"):
        whole.fork(99, "y")


def test_only_this_machine_is_answered_unless_others_may_ask(tmp_path):
    asked = SimpleNamespace(headers={"host": "elsewhere.example:80"})
    for anywhere in (False, True):
        viewer = Viewer(Site(Shelf([tmp_path])), "key", "cookie", anywhere=anywhere)
        with contextlib.nullcontext() if anywhere else pytest.raises(RequestRefused, match="not 'elsewhere"):
            viewer._check_name(asked)


def test_what_a_form_asks_for_is_what_is_played(tmp_path):
    book = SimpleNamespace(folder=tmp_path)
    assert _wanted(book, {}) == EpisodeOptions(tmp_path, None, "validation", 0, "", 0.0)
    form = {"step": "7", "split": "test", "task": "3", "seat": "a", "how": "sampled"}
    assert _wanted(book, form) == EpisodeOptions(tmp_path, 7, "test", 3, "a", 1.0)
