"""A training tree and an episode as text: prompts, replies, values, advantages, what was committed.

What a model wrote is shown as text: control characters are written out, nothing is interpreted.
"""

from __future__ import annotations

from collections.abc import Collection

from coterie.kernel.episode import (
    Answered,
    Asked,
    Called,
    Ended,
    Log,
    Noted,
    Returned,
    Rewarded,
    TurnBegan,
    path_of,
    text_of,
)
from coterie.kernel.group import Group
from coterie.kernel.safe import plain
from coterie.kernel.scene import role_of
from coterie.memory.hygiene import near_duplicates
from coterie.memory.store import MemoryConfig, Store
from coterie.run.records import Played


def tree_text(played: Played) -> str:
    """Returns one task of a saved rollout as text: at each point the prompt, and each group's members.

    A `*` marks the committed member; `a` is the advantage, `r` the return with its parts.
    """
    lines = ["(* the episode goes on with this reply; a its advantage; r its return, and the rewards in it)"]
    left = dict(enumerate(zip(played.collected.groups, played.advantages, strict=True)))
    for log in played.collected.logs:
        lines.append(
            f"task {log.task}, episode {log.id}: {'solved' if log.solved else 'not solved'}, {log.turns} turns"
        )
        asked = -1
        for event in log.events:
            if isinstance(event, TurnBegan):
                lines.append(f"turn {event.number}")
            elif isinstance(event, Asked):
                asked += 1
                for speaker, prompt in event.prompts.items():
                    place = path_of(log.id, asked, speaker), role_of(speaker)
                    lines.append(f"  point {asked}, {speaker} is asked")
                    lines += _indented(text_of(prompt), "    | ")
                    for at, (group, _) in list(left.items()):
                        if (group.key.path, group.key.role) == place:
                            lines += _members(*left.pop(at))
            elif isinstance(event, Ended):
                lines.append(f"  {event.reason}")
    for group, earned in left.values():
        if group.scope == "task":
            lines += [f"episodes of task {group.key.task}, compared as wholes", *_members(group, earned)]
        elif group.point is None:
            lines += [f"{group.key.path}: wherever {group.key.role} was asked the same", *_members(group, earned)]
    return plain("\n".join(lines))


def log_text(log: Log) -> str:
    """Returns one episode as text: who was asked what, said what and earned what."""
    lines: list[str] = []
    for event in log.events:
        match event:
            case TurnBegan():
                lines.append(f"turn {event.number}")
            case Asked():
                for role, prompt in event.prompts.items():
                    lines.append(f"  {role} is asked")
                    lines += _indented(text_of(prompt), "    | ")
            case Answered():
                for role, reply in event.replies.items():
                    cut = " (cut)" if reply.finish == "length" else ""
                    lines += _indented(reply.text, f"  {role}{cut}: ")
            case Rewarded():
                lines.append(f"  {event.name} reward {event.value:+.3f} for {event.role or 'the team'}")
            case Ended():
                lines.append(f"{'solved' if event.solved else 'not solved'}: {event.reason}")
            case Called():
                lines.append(f"  call {event.function}({_short(repr(event.args)[1:-1])})")
            case Returned():
                failed = f"failed: {': '.join(event.error)}" if event.error else repr(event.value)
                lines.append(f"    -> {_short(failed)}")
            case Noted():
                lines.append(f"  metric {event.name} = {event.value:g}")
    return plain("\n".join(lines))


LONGEST_EVENT = 200
"""Maximum number of characters of a call, or of its result."""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_EVENT else f"{text[:LONGEST_EVENT]} … ({len(text)} characters)"


def why_comparable(group: Group) -> str:
    """Returns in words what a group's members share, so that they may be compared, and its weight if that is not 1."""
    first = group.members[0].samples[0]
    weight = "" if group.weight == 1 else f"; weighs {group.weight:.3g}" if group.weight else "; not trained"
    if group.scope == "task":
        return (
            f"{len(group.members)} whole episodes of one task; their prompts differ, and the algorithm says so{weight}"
        )
    return (
        f"{len(group.members)} replies to one prompt ({len(first.prompt_ids)} tokens) by policy {first.policy} at "
        f"version {first.version}{weight}"
    )


def _members(group: Group, earned: tuple[float, ...]) -> list[str]:
    lines = [f"    group {'/'.join(map(str, group.key))}: {why_comparable(group)}"]
    for index, (member, credit) in enumerate(zip(group.members, earned, strict=True)):
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in sorted(member.parts.items()))
        text = " / ".join(sample.text for sample in member.samples)
        mark = "*" if index == group.committed else " "
        lines.append(f"    {mark} a {credit:+.3f}  r {member.value:+.3f} ({parts})  {text!r}")
    return lines


def _indented(text: str, first: str) -> list[str]:
    return [first + line for line in text.split("\n")]


def memory_text(store: Store, config: MemoryConfig, role: str | None, queries: Collection[str] | None) -> str:
    """Returns a store as a person reads it: entries by role, the strongest first.

    Args:
        role: of this one alone.
        queries: held out; entries from nearly one of them are told. None: they are not known.
    """
    if config.mode == "off":
        return "this run remembers nothing: memory.mode = 'off'"
    lines = [f"{len(store.entries)} entries after {store.iteration} steps, {store.digest[:12]}"]
    for name, share in store.baselines.items():
        if name.endswith("/"):  # tasks without a kind: the role's own line says it
            continue
        lines.append(f"success without notes, {name}: {share:.3f}")
    for owner in sorted({entry.role for entry in store.entries if role in (None, entry.role)}):
        mine = [entry for entry in store.entries if entry.role == owner]
        mine.sort(key=lambda entry: -entry.strength(store.iteration, config.half_life))
        lines += ["", f"{owner}: {len(mine)}"]
        for entry in mine:
            judged = (
                f"worth {2 * entry.utility - 1:+.2f}, shown for {entry.shown} queries"
                if entry.shown
                else "not shown yet"
            )
            state = "" if entry.state == "active" else f", {entry.state}"
            lines.append(f"  {entry.text}")
            lines.append(
                f"    for: {entry.key} ({judged}, since step {entry.born}, last used {entry.used}{state}; "
                f"from {len(entry.sources)} of {' '.join(entry.origin[:2])})"
            )
    if store.entries and queries is not None:
        near = near_duplicates(store, queries)
        lines += ["", f"from nearly one of {len(queries)} validation queries: {len(near)}"]
        lines += [f"  {entry.key}  ~  {query}" for entry, query in near[:20]]
    return plain("\n".join(lines))
