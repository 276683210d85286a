"""A hundred right programs, as people write them for contests: twenty styles of five problems, and a wrong one of each.

A problem reads numbers, one line of them after their count, and prints one number. Its `core` works that out from a
list `a`; `wrong` nearly does.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent

CORES = {
    "sum": ("sum(a)", "sum(a[1:])"),
    "spread": ("max(a) - min(a)", "max(a) - a[0]"),
    "distinct": ("len(set(a))", "len(a)"),
    "squares": ("sum(v * v for v in a)", "sum(v * 2 for v in a)"),
    "evens": ("sum(v % 2 == 0 for v in a)", "sum(v % 2 for v in a)"),
}
INPUTS = (
    "3\n4 1 7\n",
    "1\n5\n",
    "6\n2 2 8 -3 9 2\n",
    "2000\n" + " ".join(str(at * 7 % 101) for at in range(2000)) + "\n",
)
STYLES = {
    "input": """
        n = int(input())
        a = list(map(int, input().split()))
        print(CORE)
    """,
    "read all": """
        import sys
        n, *a = map(int, sys.stdin.read().split())
        print(CORE)
    """,
    "buffer": """
        import sys
        input = sys.stdin.buffer.readline
        n = int(input())
        a = [int(v) for v in input().split()]
        sys.stdout.buffer.write(b"%d\\n" % (CORE))
    """,
    "open(0)": """
        n, a = open(0)
        a = [*map(int, a.split())]
        print(CORE)
    """,
    "recursion": """
        import sys
        sys.setrecursionlimit(10 ** 6)
        def walk(left):
            return [] if not left else walk(left[1:]) + [left[0]]
        n = int(input())
        a = list(map(int, input().split()))
        a = walk(a)[::-1]
        print(CORE)
    """,
    "a thread with a deep stack": """
        import sys, threading
        sys.setrecursionlimit(1 << 20)
        threading.stack_size(1 << 27)
        def depth(n):
            return 0 if n == 0 else 1 + depth(n - 1)
        def main():
            n = int(input())
            a = list(map(int, input().split()))
            assert depth(20000) == 20000
            print(CORE)
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
    """,
    "a thread nobody joins": """
        import threading, time
        def main():
            time.sleep(0.02)
            n = int(input())
            a = list(map(int, input().split()))
            print(CORE)
        threading.Thread(target=main).start()
    """,
    "exit": """
        n = int(input())
        a = list(map(int, input().split()))
        if n:
            print(CORE)
            exit()
        print("nothing")
    """,
    "quit(0)": """
        n = int(input())
        a = list(map(int, input().split()))
        print(CORE)
        quit(0)
    """,
    "sys.exit in main": """
        import sys
        def main() -> int:
            n = int(input())
            a = list(map(int, input().split()))
            print(CORE)
            return 0
        if __name__ == "__main__":
            sys.exit(main())
    """,
    "os._exit": """
        import os, sys
        n = int(input())
        a = list(map(int, input().split()))
        print(CORE)
        sys.stdout.flush()
        os._exit(0)
    """,
    "atexit": """
        import atexit, io, sys
        out = io.StringIO()
        atexit.register(lambda: sys.__stdout__ is None or sys.stdout.write(out.getvalue()))
        n = int(input())
        a = list(map(int, input().split()))
        print(CORE, file=out)
    """,
    "collections": """
        from collections import Counter, deque
        n = int(input())
        queue = deque(map(int, input().split()))
        counts = Counter(queue)
        a = []
        while queue:
            a.append(queue.popleft())
        assert sum(counts.values()) == len(a)
        print(CORE)
    """,
    "asyncio": """
        import asyncio
        async def main():
            n = int(input())
            a = list(map(int, input().split()))
            await asyncio.sleep(0)
            print(CORE)
        asyncio.run(main())
    """,
    "a cache": """
        import sys
        from functools import lru_cache
        sys.setrecursionlimit(10 ** 5)
        n = int(input())
        given = list(map(int, input().split()))
        @lru_cache(maxsize=None)
        def take(at):
            return () if at == n else (given[at],) + take(at + 1) if n < 100 else tuple(given)
        a = list(take(0))
        print(CORE)
    """,
    "a class": """
        class Solution:
            def __init__(self):
                self.n = int(input())
                self.a = list(map(int, input().split()))
            def solve(self):
                a = self.a
                return CORE
        print(Solution().solve())
    """,
    "its own streams": """
        import io, os, sys
        data = os.read(0, 1 << 16)
        n, a = data.decode().split("\\n")[:2]
        a = list(map(int, a.split()))
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
        print(CORE)
        sys.stdout.flush()
    """,
    "a file": """
        n = int(input())
        with open("numbers.txt", "x") as file:
            file.write(input())
        with open("numbers.txt") as file:
            a = list(map(int, file.read().split()))
        print(CORE)
    """,
    "a float, and trailing spaces": """
        n = int(input())
        a = list(map(int, input().split()))
        print(f"{CORE:.0f}", end="   \\n\\n")
    """,
    "warnings and standard error": """
        import sys, warnings
        n = int(input())
        a = list(map(int, input().split()))
        warnings.warn("on standard error")
        print("working", file=sys.stderr)
        print(CORE)
    """,
}
WRAPS = {
    "plain": "{}",
    "fenced": "Here it is:\n\n```python\n{}\n```\n",
    "with an example": "```python\n{}\n```\n\nUse it so:\n\n```\n$ printf '1\\n5\\n' | python solution.py\n5\n```\n",
    "in a list": "1. First:\n\n{indented}\n\nThat is all.",
    "from Windows": "```py\n{}\n```\n",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A reply that holds a program. core, wrong: what it prints, and what its mutant does."""

    name: str
    reply: str
    wrong: str


def replies() -> list[Written]:
    """Every style of every problem, in the five ways of wrapping a program in turn."""
    found: list[Written] = []
    for number, (style, template) in enumerate(STYLES.items()):
        for at, (problem, cores) in enumerate(CORES.items()):
            wrap, how = list(WRAPS.items())[(number + at) % len(WRAPS)]
            right, wrong = (wrapped(how, dedent(template).strip().replace("CORE", core)) for core in cores)
            if wrap == "from Windows":
                right, wrong = right.replace("\n", "\r\n"), wrong.replace("\n", "\r\n")
            found.append(Written(f"{style}, {problem}, {wrap}", right, wrong))
    return found


def wrapped(how: str, program: str) -> str:
    return how.format(program, indented=indent(f"```python\n{program}\n```", "   "))


def answers(problem: str) -> list[str]:
    """What is to be printed for each input."""
    return [str(eval(CORES[problem][0], {"a": list(map(int, text.split()[1:]))})) + "\n" for text in INPUTS]
