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


def evaluation_json(evaluation: Evaluation, changes: Sequence[Change], passed: Mapping[int, float], votes: int) -> str:
    """Returns an evaluation as one JSON object.

    Args:
        passed: pass@k by k.
        votes: replies drawn at a question.
    """
    left_out = {"solved", "noted", "kinds", "logs"}
    names = [field.name for field in dataclasses.fields(evaluation) if field.name not in left_out]
    whole = {name: getattr(evaluation, name) for name in names}
    whole |= {
        "votes": votes,
        "by_kind": evaluation.by_kind,
        "noted": {name: fmean(values) for name, values in evaluation.noted.items()},
        "pass_at": passed,
        "ablations": [dataclasses.asdict(change) for change in changes],
    }
    return json.dumps(whole)


def evaluation_text(evaluation: Evaluation, changes: Sequence[Change], passed: Mapping[int, float], votes: int) -> str:
    """Returns an evaluation as a few lines for people."""
    how = f"{evaluation.sampled} sampled episodes a task" if evaluation.sampled else "greedy"
    how = how if votes == 1 else f"the majority of {votes} sampled replies at every question"
    turns = f"{evaluation.turns:.2f} turns a task (the unsolved at the limit), " if evaluation.turns else ""
    repeats = f" ({evaluation.distinct} different)" if evaluation.distinct < evaluation.tasks else ""
    lines = [
        f"{evaluation.split}: {evaluation.success:.3f} solved, "
        f"95 % interval {evaluation.success_low:.3f} to {evaluation.success_high:.3f}",
        f"{evaluation.tasks} tasks{repeats}, {how}, {turns}{evaluation.tokens:.0f} sampled tokens an episode",
    ]
    if evaluation.by_kind:
        lines.append("  by kind: " + ", ".join(f"{kind} {share:.3f}" for kind, share in evaluation.by_kind.items()))
    if len(passed) > 1:
        lines.append(", ".join(f"pass@{k} {share:.3f}" for k, share in passed.items()))
    whose = " of those not dropped" if evaluation.outcomes.get("dropped") else ""
    for name in dict.fromkeys([*evaluation.rewards, *evaluation.truncated]):
        earned = [f"reward {evaluation.rewards[name]:+.3f} an episode{whose}"] if name in evaluation.rewards else []
        cut = [f"{evaluation.truncated[name]:.1%} of replies cut"] if name in evaluation.truncated else []
        lines.append(f"  {name}: {', '.join(earned + cut)}")
    lines.append(
        "  endings: " + ", ".join(f"{reason} {count}" for reason, count in sorted(evaluation.outcomes.items()))
    )
    if changes:
        lines.append("changed, on the same tasks (change in points, paired 95 % interval):")
    lines += [
        f"  {change.ablation}: {change.success:.3f} solved, {100 * change.change:+.1f} "
        f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
        for change in changes
    ]
    return "\n".join(lines)
