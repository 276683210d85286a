"""What a process of its own is asked to do, in tests."""

import os
import signal
import time


def work(task, number=0):
    """Answers, or does what no work should."""
    match task:
        case "count":
            yield from range(number)
        case "raise":
            yield 1
            raise KeyError("there")
        case "loop":
            while True:
                pass
        case "allocate":
            yield len(bytearray(number))
        case "grow":
            kept = []
            while True:
                kept.append(bytearray(1 << 20))
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "sleep":
            time.sleep(number)
        case "know":
            yield sorted(os.environ)
            yield os.getpid()


def compute(count):
    """Answers so many times, each after half a second of a processor."""
    for _ in range(count):
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass
        yield 0
