"""The drawn figures and the demo's pages in the docs are those that the code makes now."""

import re
from pathlib import Path

import pytest

from coterie.report.looks import style
from coterie.view.pages import script
from coterie_worlds.sandbox.backends import missing
from tests.pictures import pictures

DRAWN = Path(__file__).parents[1] / "docs" / "pictures"


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
def test_the_figures_of_the_docs_are_what_is_played_and_sampled():
    drawn = pictures()
    assert {file.stem for file in DRAWN.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (DRAWN / f"{name}.svg").read_text() == text, f"make pictures: {name} differs"


def test_the_pages_of_the_demo_look_as_the_viewers_do_and_name_no_place_of_a_machine():
    demo = DRAWN.with_name("demo")
    assert (demo / "static/style.css").read_text() == style(), "make shown"
    assert (demo / "static/view.js").read_text() == script(), "make shown"
    for page in demo.rglob("*.html"):
        assert not re.search(r"/(tmp|home|root|work|Users)/", page.read_text()), page
