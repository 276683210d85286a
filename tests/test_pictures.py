"""The drawn figures of the docs are those that the code draws now."""

from pathlib import Path

import pytest

from coterie.sandbox.backends import missing
from tests.pictures import pictures

DRAWN = Path(__file__).parents[1] / "docs" / "pictures"


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
def test_the_figures_of_the_docs_are_what_is_played_and_sampled():
    drawn = pictures()
    assert {file.stem for file in DRAWN.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (DRAWN / f"{name}.svg").read_text() == text, f"make pictures: {name} differs"
