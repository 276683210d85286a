"""One of a kind, whoever asks first."""

import threading
import time

from coterie.kernel.once import Once


def test_threads_that_ask_at_once_make_one_and_forgetting_makes_another():
    made = []

    @Once
    def thing(name: str) -> list[str]:
        time.sleep(0.02)
        made.append([name])
        return made[-1]

    got = []
    threads = [threading.Thread(target=lambda: got.append(thing("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [["a"]]
    assert all(one is made[0] for one in got)
    assert thing("b") is not thing("a")
    thing.forget()
    assert thing("a") is not got[0]
