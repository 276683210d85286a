"""An evaluation as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.run.ablation import Change
    from coterie.run.evaluate import Evaluation


def evaluation_json(found: Evaluation, changes: Sequence[Change], passed: Mapping[int, float], votes: int) -> str:
    """One JSON object. Args: passed: pass@k by k. votes: replies drawn at a question."""
    whole = {key: value for key, value in dataclasses.asdict(found).items() if key not in {"solved", "noted", "kinds"}}
    whole |= {
        "votes": votes,
        "by_kind": found.by_kind,
        "noted": {name: fmean(values) for name, values in found.noted.items()},
        "pass_at": passed,
        "ablations": [dataclasses.asdict(change) for change in changes],
    }
    return json.dumps(whole)


def evaluation_text(found: Evaluation, changes: Sequence[Change], passed: Mapping[int, float], votes: int) -> str:
    """A few lines for people, of the same."""
    how = f"{found.sampled} sampled episodes a task" if found.sampled else "greedy"
    how = how if votes == 1 else f"the majority of {votes} sampled replies at every question"
    lines = [
        f"{found.split}: {found.success:.3f} solved, 95 % interval {found.success_low:.3f} to {found.success_high:.3f}",
        f"{found.tasks} tasks, {how}, {found.turns:.2f} turns a task (the unsolved at the limit), "
        f"{found.tokens:.0f} tokens",
    ]
    if found.by_kind:
        lines.append("  by kind: " + ", ".join(f"{kind} {share:.3f}" for kind, share in found.by_kind.items()))
    if len(passed) > 1:
        lines.append(", ".join(f"pass@{k} {share:.3f}" for k, share in passed.items()))
    whose = " of those not dropped" if found.outcomes.get("dropped") else ""
    for name, value in found.rewards.items():
        cut = f", {found.truncated[name]:.1%} of replies cut" if name in found.truncated else ""
        lines.append(f"  {name}: reward {value:+.3f} an episode{whose}{cut}")
    lines.append("  endings: " + ", ".join(f"{reason} {count}" for reason, count in sorted(found.outcomes.items())))
    if changes:
        lines.append("changed, on the same tasks (change in points, paired 95 % interval):")
    lines += [
        f"  {one.ablation}: {one.success:.3f} solved, {100 * one.change:+.1f} "
        f"[{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
        for one in changes
    ]
    return "\n".join(lines)
