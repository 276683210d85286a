"""What an update needs, counted by hand, and what is timed beside others."""

import psutil
import pytest

import benchmarks
from benchmarks.update import rows_of_groups, useful
from coterie.errors import ConfigError
from tests.toys import tiny


def test_what_is_useful_of_two_replies_to_a_prompt():
    """A prompt of 5 tokens and replies of 3: the last token predicts nothing, so 4 + 3 + 3 are computed.

    A layer has 1,024 + 512 + 512 + 1,024 weights of attention and three times 2,048; in the last one what is shared
    gives keys and values alone. Pairs that are seen: 4 * 4 / 2 in what is shared, 3 * 4 + 3 * 3 / 2, cut to 16, in a
    reply; a pair costs two products in each of two heads of 16.
    """
    layer = 1024 + 512 + 512 + 1024 + 3 * 2048
    weights = layer * 10 + layer * (3 + 3) + (512 + 512) * 4
    head = 32 * 320 * (3 + 3)
    pairs = (8 + 16 + 16) + (16 + 16)
    assert useful(tiny(), rows_of_groups(1, 2, 5, 3)) == 6 * (weights + head + pairs * 2 * 2 * 16) == 1_305_600


def test_what_is_timed_beside_others_wants_an_idle_machine(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 14.0)
    benchmarks.alone()
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 51.0)
    with pytest.raises(ConfigError, match=r"other processes take 51 % of this machine"):
        benchmarks.alone()
    assert benchmarks.processor()
