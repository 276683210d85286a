"""The update of the memory, once per iteration: a pure function of the store and the episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from statistics import fmean

from coterie.kernel.environment import Environment, Task
from coterie.kernel.episode import Log
from coterie.memory.hygiene import leaks, sanitised, source
from coterie.memory.recall import Recall
from coterie.memory.store import ENOUGH, LOW_TWICE, Entry, FinishedEpisode, MemoryConfig, State, Store

Z95 = 1.96
LONGEST_KEY, LONGEST_TEXT = 512, 800
"""Maximum characters of an entry's key and text."""
FEWEST_EPISODES = 16
"""Number of episodes of an iteration, below which it tells nothing."""
HIGH = (0.55, 0.95)
"""Bounds of the threshold of a strong episode."""
RATE, MOST_AT_ONCE = 0.2, 5
"""Rate at which a utility follows: 1 - (1 - RATE)^c after c queries, at most so many."""
BASELINE_RATE = 0.1
WEAK, FORGOTTEN = -0.8, 200
"""The strength, and the iterations without use, at which an entry goes."""


def told_by(environment: Environment, recall: Recall, task: Task, log: Log) -> FinishedEpisode:
    """Returns a whole episode, as memory sees it, from its log."""
    number = log.episode
    did: dict[str, list[str]] = {}
    for _, reply in log.replies():
        did.setdefault(reply.role, []).append(environment.note(reply.role, reply))
    return FinishedEpisode(
        id=f"{task.id}/{log.id}",
        task=task,
        masked=recall.masked(task, number),
        score=float(log.solved),
        shown={role: tuple(entry.id for entry in recall.seen(role, task, number)) for role in did},
        did={role: "; ".join(note for note in notes if note) for role, notes in did.items()},
    )


def evolve(store: Store, episodes: Sequence[FinishedEpisode], config: MemoryConfig) -> tuple[Store, Counter[str]]:
    """Returns the next snapshot, once an iteration, when every reward is in.

    Args:
        episodes: of this iteration, whole ones, in any order.

    Returns:
        the store, and how many entries were added, known again, refused, quarantined, deleted, evicted; or that the
        iteration was "skipped": its episodes were too few or all alike, and tell nothing.
    """
    now = store.iteration + 1
    counts: Counter[str] = Counter()
    ordered = sorted(episodes, key=lambda episode: episode.id)
    baselines = _baselines(store.baselines, ordered)
    scores = [episode.score for episode in ordered]
    if len(scores) < FEWEST_EPISODES or max(scores) - min(scores) < 1e-6:
        used = tuple(_used(entry, _showing(entry, ordered), now) for entry in store.entries)
        return Store(used, now, baselines), Counter({"skipped": 1})
    high = threshold(ordered)
    kept: list[Entry] = []
    for role in sorted({entry.role for entry in store.entries} | {role for episode in ordered for role in episode.did}):
        if config.roles and role not in config.roles:
            continue
        mine = [episode for episode in ordered if role in episode.did]
        old = [entry for entry in store.entries if entry.role == role]
        entries = {entry.id: _judged(entry, mine, store.baselines, now, config.worth) for entry in old}
        for entry in _candidates(mine, role, high, now, config, counts):
            known = entries.get(entry.id)
            counts["known" if known else "added" if entry.state == "active" else "quarantined"] += 1
            entries[entry.id] = (
                replace(known, sources=known.sources | entry.sources, origin=entry.origin) if known else entry
            )
        lasting = [entry for entry in entries.values() if not _spent(entry, now, config)]
        counts["deleted"] += len(entries) - len(lasting)
        lasting.sort(
            key=lambda entry: (entry.state == "active", entry.strength(now, config.half_life), entry.born, entry.id)
        )
        counts["evicted"] += max(0, len(lasting) - config.capacity)
        kept += lasting[-config.capacity :]
    return Store(tuple(sorted(kept, key=lambda entry: entry.id)), now, baselines), counts


def threshold(episodes: Sequence[FinishedEpisode]) -> float:
    """Returns the score from which on an episode is strong; each query counts once.

    Two deviations above the mean as published, clamped so that it can be reached. Of all episodes, for the
    reward is the whole team's: a role that is seldom asked would have to wait for one of its own.
    """
    queries: dict[str, list[float]] = {}
    for episode in episodes:
        queries.setdefault(episode.task.id, []).append(episode.score)
    mean = fmean(fmean(scores) for scores in queries.values())
    deviation = math.sqrt(fmean(fmean((score - mean) ** 2 for score in scores) for scores in queries.values()))
    return min(max(mean + Z95 * deviation, HIGH[0]), HIGH[1])


def _baselines(before: Mapping[str, float], episodes: Sequence[FinishedEpisode]) -> dict[str, float]:
    scores_of: dict[str, list[float]] = {}
    for episode in episodes:
        for role in episode.did if episode.masked else ():
            for name in {role, f"{role}/{episode.task.kind}"}:
                scores_of.setdefault(name, []).append(episode.score)
    new = {
        name: fmean(scores) if name not in before else before[name] + BASELINE_RATE * (fmean(scores) - before[name])
        for name, scores in scores_of.items()
    }
    return dict(sorted({**before, **new}.items()))


def _showing(entry: Entry, episodes: Sequence[FinishedEpisode]) -> dict[str, list[FinishedEpisode]]:
    """Returns the episodes whose role was shown an entry, by query."""
    showing: dict[str, list[FinishedEpisode]] = {}
    for episode in episodes:
        if entry.id in episode.shown.get(entry.role, ()):
            showing.setdefault(episode.task.id, []).append(episode)
    return showing


def _used(entry: Entry, showing: Mapping[str, Sequence[FinishedEpisode]], now: int) -> Entry:
    if not showing:
        return entry
    count = len(showing)
    return replace(entry, used=now, shown=entry.shown + count, probation=max(0, entry.probation - count))


def _judged(
    entry: Entry, episodes: Sequence[FinishedEpisode], baselines: Mapping[str, float], now: int, worth: float
) -> Entry:
    """Returns an entry judged by what showing it did, against the same queries, or their kind, without notes.

    Args: episodes: in which its role acted, shown notes or not: acting goes with success by itself.
    """
    showing = _showing(entry, episodes)
    masked: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.masked:
            masked.setdefault(episode.task.id, []).append(episode.score)
    effects: list[float] = []
    for query, shown in showing.items():
        kind = f"{entry.role}/{shown[0].task.kind}"
        without = fmean(masked[query]) if query in masked else baselines.get(kind, baselines.get(entry.role))
        if without is not None:
            effects.append(fmean(episode.score for episode in shown) - without)
    if not effects:
        return _used(entry, showing, now)
    rate = 1 - (1 - RATE) ** min(len(showing), MOST_AT_ONCE)
    utility = (1 - rate) * entry.utility + rate * min(max(0.5 + 0.5 * fmean(effects), 0.0), 1.0)
    low = entry.low + 1 if 2 * utility - 1 <= worth else 0
    return replace(_used(entry, showing, now), utility=utility, low=low)


def _candidates(
    episodes: Sequence[FinishedEpisode], role: str, high: float, now: int, config: MemoryConfig, counts: Counter[str]
) -> list[Entry]:
    """Returns the best few new entries of strong episodes: one of each text, then a second; quarantined ones last.

    So many queries that end alike do not crowd out what others tell.
    """
    new: dict[str, tuple[float, Entry]] = {}
    for episode in episodes:
        if episode.score < high or not episode.did[role]:
            continue
        text, tampered = sanitised(episode.did[role], LONGEST_TEXT)
        key, odd = sanitised(episode.task.query, LONGEST_KEY)
        if episode.task.split != "train" or not text or not key or leaks(text, episode.task):
            counts["refused"] += 1
            continue
        name = blake2b("\0".join((role, key.lower(), text.lower())).encode(), digest_size=8).hexdigest()
        state: State = "quarantined" if tampered or odd else "active"
        entry = Entry(
            id=name, role=role, key=key, text=text, born=now, used=now, sources=frozenset([source(episode.task.query)]),
            origin=(episode.task.split, episode.task.id, episode.id), state=state,
        )  # fmt: skip
        new[name] = (episode.score, entry)
    turns: Counter[tuple[str, str]] = Counter()
    best: list[tuple[int, Entry]] = []
    for _, entry in sorted(new.values(), key=lambda pair: (-pair[0], pair[1].id)):
        best.append((turns[entry.state, entry.text], entry))
        turns[entry.state, entry.text] += 1
    best.sort(key=lambda pair: (pair[1].state != "active", pair[0]))
    return [entry for _, entry in best[: config.add]]


def _spent(entry: Entry, now: int, config: MemoryConfig) -> bool:
    """Returns True if an entry has shown itself useless, or has not been of use for long."""
    low = entry.probation == 0 and entry.shown >= ENOUGH and entry.low >= LOW_TWICE
    return low or entry.strength(now, config.half_life) < WEAK or now - entry.used > FORGOTTEN
