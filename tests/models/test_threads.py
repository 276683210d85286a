"""How many threads compute: what is measured decides, where it may."""

import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coterie import load_config
from coterie.engines.transformers import TransformersEngine
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip
from coterie.models import threads
from coterie.models.load import save_model
from coterie.models.threads import Threads
from coterie.run.policies import Policies, settle
from tests.toys import policies, run, tiny


@pytest.fixture(autouse=True)
def two():
    """Two threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def small():
    """Layers of 16 columns, which `tiny` has, are not the same with any number of threads on some processors."""
    return tiny(hidden=64, keys=2)


def settled(one: float, both: float, *nets) -> int:
    asked = Threads(nets or [small().net], lambda count: {1: one, 2: both}[count])
    asked.settle()
    count = torch.get_num_threads()
    asked.restore()
    assert torch.get_num_threads() == 2
    return count


def test_all_threads_are_taken_where_they_are_faster_than_one_by_a_tenth():
    assert settled(1.0, 0.6) == 2
    assert settled(1.0, 0.92) == 1
    assert settled(1.0, 5.0) == 1, "another process has a core"


def test_fewer_threads_are_taken_only_where_a_longer_measurement_says_so_too():
    left = [5.0] * threads.ROUNDS

    def seconds(count: int) -> float:
        return 1.0 if count == 1 else left.pop() if left else 0.6

    asked = Threads([small().net], seconds)
    asked.settle()
    assert (torch.get_num_threads(), left) == (2, [])


def test_works_that_have_nothing_in_common_are_done_side_by_side_with_a_part_of_the_threads_each():
    both = threading.Barrier(2)

    def work(number: int) -> tuple[int, int]:
        both.wait(10)  # neither is done before the other has begun
        return number, torch.get_num_threads()

    asked = Threads([small().net], lambda count: 1 / count)
    with asked.settled():
        assert asked.beside([partial(work, 7), partial(work, 8)]) == [(7, 1), (8, 1)]
        assert torch.get_num_threads() == 2
    asked.restore()


def test_where_one_thread_is_faster_or_bits_would_change_works_are_done_one_after_the_other(monkeypatch):
    def where() -> tuple[int, int]:
        return threading.get_ident(), torch.get_num_threads()

    for seconds, alike, count in ((float, True, 1), (lambda count: 1 / count, False, 2)):
        monkeypatch.setattr(threads, "_alike", lambda *_, alike=alike: alike)
        asked = Threads([small().net], seconds)
        with asked.settled():
            assert asked.beside([where, where]) == [(threading.get_ident(), count)] * 2
        asked.restore()


def test_what_fails_beside_another_is_raised_when_all_are_done():
    done: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("the first")
        time.sleep(0.05)
        done.append(number)

    asked = Threads([small().net], lambda count: 1 / count)
    with asked.settled(), pytest.raises(ValueError, match="the first"):
        asked.beside([partial(work, 0), partial(work, 1)])
    assert done == [1]
    assert torch.get_num_threads() == 2
    asked.restore()


def count_tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not threads._pauses(), reason="PyTorch computes with another library than GNU's here")
def test_what_has_computed_leaves_no_helpers_that_others_would_wait_for():
    def wait_for(tasks: int) -> None:
        deadline = time.monotonic() + 10
        while count_tasks() != tasks and time.monotonic() < deadline:  # helpers take a moment to end
            time.sleep(0.01)
        assert count_tasks() == tasks

    square = torch.ones(512, 512)
    Threads([small().net], lambda count: 1 / count).settle()
    torch.mm(square, square)
    helped = count_tasks()
    asked = Threads([small().net], lambda count: 1 / count)
    wait_for(helped - 1)
    with asked.settled():
        torch.mm(square, square)
        assert count_tasks() == helped
    wait_for(helped - 1)


def test_a_count_that_was_never_set_is_not_set_back():
    asked = Threads([small().net.to("meta")])
    asked.settle()
    torch.set_num_threads(1)  # somebody's own
    asked.restore()
    assert torch.get_num_threads() == 1


def test_it_is_measured_again_where_the_last_time_is_long_ago(monkeypatch):
    now, took = [100.0], {1: 1.0, 2: 0.6}
    monkeypatch.setattr(threads.time, "monotonic", lambda: now[0])
    asked = Threads([small().net], lambda count: took[count])
    asked.settle()
    took[2] = 5.0
    now[0] += threads.EVERY_S - 0.1
    asked.settle()
    assert torch.get_num_threads() == 2
    now[0] += 0.2
    asked.settle()
    assert torch.get_num_threads() == 1
    took[2] = 0.6
    now[0] += threads.EVERY_S
    asked.settle()
    assert torch.get_num_threads() == 2, "the core is free again"


def test_large_networks_and_those_whose_bits_would_change_keep_all_threads(monkeypatch):
    assert settled(1.0, 5.0, small().net, small().net.to("meta")) == 2
    monkeypatch.setattr(threads, "SMALL", small().size - 1)
    assert settled(1.0, 5.0) == 2
    monkeypatch.undo()
    monkeypatch.setattr(threads, "_alike", lambda *_: False)
    assert settled(1.0, 5.0) == 2


def test_one_head_of_keys_is_not_the_same_with_any_number_of_threads():
    """The library's kernel divides rows and heads of keys among threads: where it cannot, a product has them all."""
    assert settled(1.0, 5.0, tiny(hidden=64, keys=1).net) == 2
    assert settled(1.0, 5.0, tiny(hidden=64, keys=2).net) == 1


def test_products_that_depend_on_the_count_are_found():
    assert threads._alike(2, (48, 32), torch.Generator().manual_seed(0))

    class Counts(TorchDispatchMode):
        """A library whose products depend on how many threads there are."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * (1 + 1e-6 * torch.get_num_threads()) if func is torch.ops.aten.mm.default else found

    with Counts():
        assert not threads._alike(2, (48, 32), torch.Generator().manual_seed(0))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_each_of_a_layers_products_and_the_norm_is_compared(number):
    """Forward, backward, gradient, norm: one of the four depends on how many threads there are."""

    class One(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            if func in (torch.ops.aten.mm.default, torch.ops.aten.linalg_vector_norm.default):
                self.seen = self.seen % 4 + 1
                if self.seen == number:
                    return found * (1 + 1e-6 * torch.get_num_threads())
            return found

    with One() as mode:
        assert not threads._alike(2, (48, 32), torch.Generator().manual_seed(0))
    assert mode.seen == 4


def test_products_of_few_rows_that_depend_on_the_count_are_found():
    class Few(TorchDispatchMode):
        """Intel's library, as it is by default on some processors."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            few = func is torch.ops.aten.mm.default and len(found) == 6
            return found * (1 + 1e-6 * torch.get_num_threads()) if few else found

    with Few():
        assert not threads._alike(2, (48, 32), torch.Generator().manual_seed(0))


@pytest.mark.slow
def test_products_are_the_same_with_any_number_of_threads_once_coterie_is_there():
    program = (
        "import coterie.models.threads, torch\n"
        "draw = torch.Generator().manual_seed(0)\n"
        "for rows in range(1, 40):\n"
        "    made = [torch.randn(rows, 128, generator=draw), torch.randn(rows, 32, generator=draw),"
        " torch.randn(128, 32, generator=draw)]\n"
        "    found = [torch.set_num_threads(count) or torch.addmm(made[0], made[1], made[2].t())"
        " for count in (1, 2)]\n"
        "    assert torch.equal(*found), rows\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_engine_and_learner_ask_where_they_begin_and_leave_the_count_as_it_was(monkeypatch):
    monkeypatch.setattr(threads, "_seconds", float)
    ended: list[str] = []
    monkeypatch.setattr(threads, "end_helpers", lambda: ended.append("helpers"))
    from tests.engines.test_engine import prompts, request
    from tests.learning.test_learner import experience

    engine = TransformersEngine(policies({"p": small()}))
    ended.clear()
    run(engine.generate([request(prompts(1)[0], [1])]))
    assert (torch.get_num_threads(), len(ended)) == (1, 1)
    run(engine.close())
    assert torch.get_num_threads() == 2
    learner = LocalLearner(policies({"p": small()}), Clip(), 4)
    ended.clear()
    learner.update({"p": experience()}, 0)
    assert (torch.get_num_threads(), len(ended)) == (1, 1)
    learner.close()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("wanted", [True, False])
def test_a_state_that_is_used_by_several_rows_has_one_gradient_with_two_threads(wanted):
    """As where rows continue one prompt. Otherwise PyTorch adds their gradients up in any order."""
    chance = torch.Generator().manual_seed(0)
    given = torch.randn(200, 576, generator=chance)
    rows = torch.randint(3, (200,), generator=chance)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        settle(deterministic=wanted)
        found: set[bytes] = set()
        for _ in range(30):
            states = torch.zeros(3, 576, requires_grad=True)
            states[rows].backward(given)
            assert states.grad is not None
            found.add(states.grad.numpy().tobytes())
    finally:
        settle(deterministic=before)
    assert len(found) == 1 or not wanted


def test_a_policy_on_a_processor_is_deterministic_unless_the_config_says_otherwise(tmp_path):
    save_model(small(), tmp_path / "model")
    for wanted in ("true", "false", "true"):
        sets = [f"policies.team.model={tmp_path / 'model'}", f"train.deterministic={wanted}", "train.device=cpu"]
        config = load_config("tests/toys.py:Agree", sets)
        Policies(config).make("team", config.policies["team"])
        assert torch.are_deterministic_algorithms_enabled() == (wanted == "true")
