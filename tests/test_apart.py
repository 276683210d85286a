"""Work in a process of its own: limited in memory and processor time, ended and started again, ignorant of secrets."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from coterie import apart
from coterie.apart import Apart, Refused, limited

ROOT = str(Path(__file__).parents[1])


@pytest.fixture
def works(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")])))
    process = Apart("tests.works:work", memory=100 << 20)
    yield process
    process.close()


def test_answers_come_one_by_one_and_the_process_stays(works):
    assert list(works.ask("count", 3)) == [0, 1, 2]
    first, second = works.ask("know"), works.ask("know")
    assert list(first)[1] == list(second)[1] != os.getpid()
    assert works.one("count", 1) == 0


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (("loop",), "it takes more than 1 s"),
        (("grow",), "it takes more than 100 MB"),
        (("allocate", 1 << 40), "it takes more than 100 MB"),
        (("die",), "it takes more than 100 MB, or breaks what reads it"),
    ],
)  # fmt: skip
def test_what_takes_too_much_is_refused_and_the_next_is_answered(task, reason, works):
    with pytest.raises(Refused, match=f"^{reason}$"):
        list(works.ask(*task))
    assert list(works.ask("count", 2)) == [0, 1]


def test_each_answer_may_take_as_long_as_the_first(works):
    computing = Apart("tests.works:compute")
    assert list(computing.ask(5)) == [0] * 5
    computing.close()


def test_its_imports_do_not_count(works):
    assert works.one("allocate", 90 << 20) == 90 << 20


def test_what_never_computes_is_given_up(works, monkeypatch):
    assert works.one("count", 1) == 0
    monkeypatch.setattr(apart, "LATE", 0.2)
    with pytest.raises(Refused, match=r"nothing came for 0\.2 s"):
        list(works.ask("sleep", 60))


def test_what_the_work_raises_is_said_after_its_answers(works):
    answers = works.ask("raise")
    assert next(answers) == 1
    with pytest.raises(Refused, match="'there'") as raised:
        next(answers)
    assert raised.value.kind == "KeyError"
    assert list(works.ask("count", 1)) == [0]


def test_answers_that_were_not_read_are_not_the_next_ones(works):
    answers = works.ask("count", 10**6)
    assert next(answers) == 0
    answers.close()
    assert works.one("allocate", 5) == 5


def test_a_signal_to_everybody_in_the_terminal_does_not_reach_it(works):
    _, pid = works.ask("know")
    assert os.getsid(pid) != os.getsid(0)


def test_it_is_given_no_variable_that_it_does_not_need(works, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    names, _ = works.ask("know")
    assert set(names) <= {*apart.KEPT, *apart.QUIET, "LC_CTYPE"}


def test_threads_get_their_own_answers(works):
    found = dict[int, list[int]]()
    threads = [Thread(target=lambda n=n: found.update({n: list(works.ask("count", n))})) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: list(range(n)) for n in range(1, 9)}


def test_a_fork_has_a_process_of_its_own(works):
    _, mine = works.ask("know")
    child = os.fork()
    if not child:
        _, theirs = works.ask("know")
        os._exit(int(theirs == mine))
    assert os.waitpid(child, 0)[1] == 0
    assert list(works.ask("know"))[1] == mine


def test_a_fork_does_not_end_the_process_of_another(works):
    _, mine = works.ask("know")
    child = os.fork()
    if not child:
        works.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert list(works.ask("know"))[1] == mine


def test_it_ends_with_whoever_started_it(works):
    code = "import os; from coterie.apart import Apart; print(*Apart('tests.works:work').ask('know')); os._exit(0)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    command = Path(f"/proc/{ended.stdout.split()[-1]}/cmdline")
    for _ in range(100):
        if not command.exists() or not command.read_bytes():
            return
        time.sleep(0.1)
    pytest.fail("it is still there")


def test_memory_is_limited_while_it_lasts_and_no_limit_is_widened():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with limited(64 << 20):
        with pytest.raises(MemoryError):
            bytearray(1 << 30)
        now = resource.getrlimit(resource.RLIMIT_AS)[0]
        with limited(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == now
    assert resource.getrlimit(resource.RLIMIT_AS) == before
