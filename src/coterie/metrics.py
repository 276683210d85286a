"""What a step's line in metrics.jsonl holds; `docs/metrics.md` explains every name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from coterie.episode import Noted
from coterie.evaluate import Evaluation
from coterie.group import Group
from coterie.play import Budget
from coterie.runs import Played


def rollout_metrics(played: Sequence[Played], budget: Budget) -> dict[str, float]:
    """The rollout: success of the committed episodes, groups and rewards by role, what was lost."""
    logs = [log for one in played for log in one.collected.logs]
    groups = [group for one in played for group in one.collected.groups]
    line: dict[str, float] = {
        "rollout/success": fmean(log.solved for log in logs) if logs else 0.0,
        "rollout/turns": fmean(log.turns for log in logs) if logs else 0.0,
        "rollout/reply_tokens": budget.sampled_tokens / max(1, budget.replies.total()),
        "groups/total": len(groups),
        "groups/live": sum(group.live for group in groups),
    }
    for role in sorted({group.key.role for group in groups}):
        line |= _role(role, [group for group in groups if group.key.role == role])
    rewards = [log.rewards() for log in logs]
    for name in sorted({name for one in rewards for name in one}):
        line[f"reward/{name}"] = fmean(one.get(name, 0.0) for one in rewards)
    noted: dict[str, list[float]] = {}
    for event in (event for log in logs for event in log.events if isinstance(event, Noted)):
        noted.setdefault(event.name, []).append(event.value)
    line |= {f"metric/{name}": fmean(values) for name, values in sorted(noted.items())}
    for role in sorted(budget.replies):
        line[f"role/{role}/truncated_share"] = budget.truncated[role] / budget.replies[role]
    for stage, count in sorted(budget.dropped.items()):
        line[f"rollout/dropped/{stage}"] = count
    return line


def _role(role: str, groups: list[Group]) -> dict[str, float]:
    live = sum(group.live for group in groups)
    return {
        f"role/{role}/return": fmean(value for group in groups for value in group.values),
        f"role/{role}/live_groups": live,
        f"role/{role}/zero_variance_share": 1 - live / len(groups),
    }


def policy_metrics(learned: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The update, by policy."""
    return {f"policy/{name}/{key}": value for name, metrics in learned.items() for key, value in metrics.items()}


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """A plain evaluation."""
    area = evaluation.split
    return {
        f"{area}/success": evaluation.success,
        f"{area}/success_low": evaluation.success_low,
        f"{area}/success_high": evaluation.success_high,
        f"{area}/turns": evaluation.turns,
        f"{area}/dropped": evaluation.dropped,
        **{f"{area}/reward/{name}": value for name, value in evaluation.rewards.items()},
    }


def add_budget(total: dict[str, int], budget: Budget, learned: Mapping[str, Mapping[str, float]]) -> None:
    """Adds a step to the run's four counters."""
    spent = {
        "prompt_tokens": budget.prompt_tokens,
        "sampled_tokens": budget.sampled_tokens,
        "engine_calls": budget.engine_calls,
        "trained_tokens": int(sum(metrics["trained_tokens"] for metrics in learned.values())),
    }
    for name, count in spent.items():
        total[name] = total.get(name, 0) + count
