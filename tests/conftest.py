"""One thread a worker: threads of two workers on two cores would only wait for each other. Signals as in a terminal:
who runs the tests may ignore some, as nohup does, and what ignores them is a test's own business."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

CACHE = tempfile.TemporaryDirectory(prefix="coterie-tests-")
os.environ["XDG_CACHE_HOME"] = CACHE.name  # what is kept in the usual place is a person's own
os.environ["XDG_CONFIG_HOME"] = str(Path(CACHE.name) / "config")
for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    signal.signal(number, handler)

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # no test depends on time
settings.register_profile(
    "mutants",
    parent=settings.get_profile("busy"),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    max_examples=30,
)
"""For `make mutants`: a mutant is killed by a failure; to shrink it takes minutes and tells nothing more."""
LONGEST = ("test_every_command_and_python_block", "test_demo", "test_fsdp", "test_trackers", "test_five_whole_models")


def pytest_collection_finish():
    """Sets the threads of torch where something has imported it: a test of plain numbers needs none."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


one_thread = pytest.fixture(pytest_collection_finish, autouse=True, name="one_thread")
"""For torch that a test itself has imported."""


def pytest_collection_modifyitems(items):
    """The longest begin first, or one worker would be left alone with them at the end."""
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))
