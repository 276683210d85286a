"""What three agents have in common: rows of cells, some marked, cut up for as many counters as a lead wants.

The lead is told how long a row is, and says how many counters there shall be; each counts the marks of its piece. More
counters cost more, and long pieces are counted wrong more often. The team has done it where their numbers add up.
"""

from random import Random

roles = ("lead", "counter")
MOST, COST, TOKENS = 6, 0.02, 4


def tasks(split):
    """Rows; the same ones never stand in two splits."""
    sizes = {"train": 2000, "validation": 200, "test": 400}
    rng, found, others = Random("rows"), {}, set()
    for name, size in sizes.items():
        rows = set()
        while len(rows) < size:
            row = "".join(rng.choice("x.") for _ in range(rng.randint(8, 24)))
            if row not in others:
                rows.add(row)
        found[name] = sorted(rows)
        others |= rows
    return found[split]


def to_lead(cells):
    return f"{len(cells)} cells. How many counters?"


def to_counters(cells, said):
    """What each counter is told; nothing where the lead said no number of counters."""
    count = int(said) if said.strip().isdecimal() and len(said) < 9 else 0
    if not 1 <= count <= MOST:
        return []
    size, longer = divmod(len(cells), count)
    ends = [size * piece + min(piece, longer) for piece in range(count + 1)]
    return [f"Count x: {' '.join(cells[start:end])}" for start, end in zip(ends, ends[1:])]


def earned(cells, answers):
    """What a run has come to."""
    if not answers:
        return {"reward": 0.0, "rewards": {"lead": -1.0}, "reason": "the lead said no number of counters"}
    right = all(answer.strip().isdecimal() and len(answer) < 9 for answer in answers)
    right = right and sum(map(int, answers)) == cells.count("x")
    return {"reward": float(right), "rewards": {"lead": -COST * len(answers)}, "metrics": {"counters": len(answers)}}
