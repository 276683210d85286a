"""Parts of a run that do not answer."""

from coterie.run.lookout import Lookout


def test_who_says_nothing_new_is_told_of_and_killed_once(capfd):
    said, killed = {"engine x/0": "node 7 0", "worker 0": ""}, []
    lookout = Lookout(list(said), said.__getitem__, killed.append)

    def look(times: int) -> str:
        for _ in range(times):
            lookout.look()
        return capfd.readouterr().err

    assert look(1 + 29) == ""
    assert look(1) == "\ncoterie: engine x/0 has not answered for 60 s; after 120 s it is killed\n"
    said["engine x/0"] = "node 7 1"  # it was slow
    assert look(1 + 29) == ""
    assert "for 60 s" in look(1)
    assert not killed
    assert look(30) == "\ncoterie: engine x/0 has not answered for 120 s, and is killed\n"
    assert killed == ["node 7 1"]
    assert look(100) == "", "nor is the worker late, which has not begun"
    said["engine x/0"] = "node 8 0"  # begun again
    assert look(1 + 29) == ""
    assert "for 60 s" in look(1)


def test_who_cannot_be_heard_of_just_now_is_not_late(capfd):
    def heard(name):
        raise OSError

    lookout = Lookout(["rank 0"], heard, str)
    for _ in range(100):
        lookout.look()
    assert capfd.readouterr().err == ""
