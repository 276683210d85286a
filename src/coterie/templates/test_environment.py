"""NewEnvironment keeps its contract, and pays what it should. Run it: pytest test_new_environment.py."""

from new_environment import NewEnvironment, right_places

import coterie


def test_it_keeps_the_contract():
    report = coterie.check(NewEnvironment())
    assert report.ok, report


def test_what_a_reply_earns():
    assert right_places("1 2 3 4", "1 2 3 4") == 1
    assert right_places("1 2 4 3", "1 2 3 4") == 0.5
    assert right_places("", "1 2 3 4") == 0
    assert right_places("1 " * 1000, "1 2 3 4") < 0.01
