"""ram: what was freed goes back to the machine."""

import subprocess
import sys

import psutil
import pytest
import torch

from coterie import load_config, ram
from coterie.run import policies
from coterie.run.loaded import load

MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told to give back")
def test_freed_memory_goes_back_to_the_machine():
    """Of blocks between which some stay, as after an update; those that glibc maps one by one are back anyway."""
    warm = [torch.ones(4 * MIB) for _ in range(4)]  # from then on glibc keeps blocks of up to 16 MiB
    del warm
    blocks = [torch.ones(MIB // 4) for _ in range(256)]
    kept = blocks[::32]
    held = psutil.Process().memory_info().rss
    del blocks
    ram.give_back()
    assert held - psutil.Process().memory_info().rss > 128 * MIB
    assert all(bool((block == 1).all()) for block in kept)


def test_what_only_cycles_hold_is_collected_first_if_asked():
    class Cyclic:
        def __init__(self):
            self.me = self
            self.block = torch.ones(64 * MIB)

    Cyclic()
    held = psutil.Process().memory_info().rss
    ram.give_back(collect=True)
    assert held - psutil.Process().memory_info().rss > 128 * MIB


MAPPED = """
import psutil, torch
from coterie import ram
block = 1 << 19  # numbers of 2 MiB
warm = torch.ones(8 * block)
del warm  # from then on glibc keeps blocks of up to 16 MiB
{told}
blocks = [torch.ones(block) for _ in range(200)]
held = psutil.Process().memory_info().rss
kept, blocks = blocks[::20], None
print(held - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told to map")
def test_blocks_that_are_mapped_go_back_when_they_are_freed():
    freed = [
        int(subprocess.run([sys.executable, "-c", MAPPED.format(told=told)], capture_output=True, check=True).stdout)
        for told in ("ram.map_blocks()", "")
    ]
    assert freed[0] > 300 * MIB > freed[1]


@pytest.mark.parametrize("large", [True, False])
def test_blocks_are_mapped_where_a_large_model_is_on_a_processor(large, monkeypatch):
    told = []
    monkeypatch.setattr(ram, "map_blocks", lambda: told.append(True))
    monkeypatch.setattr(policies, "LARGE", 10 if large else 10**9)
    load(load_config("plan_path", ["policies.team.model=starter"])).close()
    assert bool(told) == large
