"""Metrics of a step, as its line in metrics.jsonl holds them; `docs/metrics.md` explains every name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean

from coterie.algorithms.selection import Choice, select, variation
from coterie.kernel.episode import NO_OUTCOME, Log, Noted, Rewarded
from coterie.kernel.front import Budget
from coterie.kernel.group import Group
from coterie.kernel.team import Graded, teaches
from coterie.learning.batch import Learned
from coterie.memory.store import FinishedEpisode, Store
from coterie.run.evaluate import Evaluation
from coterie.run.records import Played


def rollout_metrics(played: Sequence[Played], budget: Budget) -> dict[str, float]:
    """Returns metrics of the rollout: success of the committed episodes, groups and rewards by role, what was lost."""
    logs = [log for task in played for log in task.collected.logs]
    credited = [pair for task in played for pair in zip(task.collected.groups, task.advantages, strict=True)]
    live = [teaches(group, earned) for group, earned in credited]
    groups = [group for group, _ in credited]
    line: dict[str, float] = {
        "rollout/success": fmean(log.solved for log in logs) if logs else 0.0,
        "rollout/turns": fmean(log.turns for log in logs) if logs else 0.0,
        "rollout/reply_tokens": budget.sampled_tokens / max(1, budget.replies.total()),
        "groups/total": len(groups),
        "groups/live": sum(live),
    }
    line |= _unsaid(logs)
    for role in sorted({role for group in groups for role in _speakers(group)}):
        theirs = [(group, lives) for group, lives in zip(groups, live, strict=True) if role in _speakers(group)]
        line |= _role(role, theirs)
    rewards = [log.rewards() for log in logs]
    for name in sorted({name for task in rewards for name in task}):
        line[f"reward/{name}"] = fmean(task.get(name, 0.0) for task in rewards)
    noted: dict[str, list[float]] = {}
    for event in (event for log in logs for event in log.events if isinstance(event, Noted)):
        noted.setdefault(event.name, []).append(event.value)
    line |= {f"metric/{name}": fmean(values) for name, values in sorted(noted.items())}
    for role in sorted(budget.replies):
        line[f"role/{role}/truncated_share"] = budget.truncated[role] / budget.replies[role]
        if tokens := budget.cut_tokens[role]:
            line[f"role/{role}/cut_tokens"] = tokens / budget.truncated[role]
    for what, counts in (("overlong", budget.overlong), ("dropped", budget.dropped), ("retried", budget.retried)):
        line |= {f"rollout/{what}/{stage}": count for stage, count in sorted(counts.items())}
    return line | _calls(budget)


def _calls(budget: Budget) -> dict[str, float]:
    """Returns metrics of what `scene.call` ran, by the function's name; nothing if it ran nothing."""
    line: dict[str, float] = {"rollout/calls": budget.calls.total()} if budget.calls else {}
    for name in sorted(budget.calls):
        line[f"call/{name}/count"] = budget.calls[name]
        line[f"call/{name}/timeouts"] = budget.call_timeouts[name]
        line[f"call/{name}/crashes"] = budget.call_crashes[name]
    return line


def _unsaid(logs: Sequence[Log]) -> dict[str, float]:
    """Returns shares of episodes in which `play` gave no reward, and said no outcome; nothing where all did."""
    if not logs:
        return {}
    shares = {
        "no_reward": fmean(not any(isinstance(event, Rewarded) for event in log.events) for log in logs),
        "no_outcome": fmean(log.outcome is None or log.outcome.reason == NO_OUTCOME for log in logs),
    }
    return {f"rollout/{name}": share for name, share in shares.items() if share}


def _speakers(group: Group) -> set[str]:
    """Returns the roles whose samples a group trains: one, or in whole episodes all of the team."""
    return {sample.role for member in group.members for sample in member.samples}


def _role(role: str, groups: list[tuple[Group, bool]]) -> dict[str, float]:
    live = sum(lives for _, lives in groups)
    return {
        f"role/{role}/return": fmean(value for group, _ in groups for value in group.values),
        f"role/{role}/live_groups": live,
        f"role/{role}/zero_variance_share": 1 - live / len(groups),
        f"role/{role}/same_share": fmean(len(group.members) > 1 and group.alike for group, _ in groups),
    }


def selection_metrics(drawn: Sequence[Group], chosen: Sequence[Group]) -> dict[str, float]:
    """Returns metrics of the choice of groups and the spread of returns; nothing if nobody chose or played twice."""
    live = [group for group in drawn if group.live]
    varied = [variation(group) for group in live]
    known = [told for told in varied if told.signal is not None]
    twice = any(len(member.returns) > 1 for group in drawn for member in group.members)
    if not twice and len(chosen) in (len(live), len(drawn)):
        return {}
    chosen = [group for group in chosen if group.live]
    line: dict[str, float] = {"selection/groups": len(chosen)}
    if known:
        line["selection/signal"] = fmean(told.spread - (told.noise or 0.0) for told in known)
        line["selection/noise"] = fmean(told.noise or 0.0 for told in known)
        line["selection/reliability"] = fmean(told.reliability for told in known)
    for role in sorted({group.key.role for group in drawn}):
        line[f"role/{role}/selected"] = sum(group.key.role == role for group in chosen)
    if chosen:
        line["selection/point"] = fmean(group.point or 0 for group in chosen)
        most_varied = {group.key for group in select(live, Choice("raw_var", len(chosen)), Random(0))}
        line["selection/as_raw_var"] = fmean(group.key in most_varied for group in chosen)
    return line


def update_metrics(experience: Mapping[str, Sequence[Graded]], learned: Mapping[str, Learned]) -> dict[str, float]:
    """Returns metrics of the update, by policy and by role."""
    line = {f"policy/{name}/{key}": value for name, policy in learned.items() for key, value in policy.metrics.items()}
    advantage: dict[str, float] = {}
    for graded in (member for policy in experience.values() for member in policy):
        role = graded.sample.role
        advantage[role] = advantage.get(role, 0.0) + abs(graded.advantage) * graded.weight
    gradient = {role: part.gradient for policy in learned.values() for role, part in policy.roles.items()}
    for name, sizes in (("advantage_share", advantage), ("gradient_share", gradient)):
        total = sum(sizes.values())
        line |= {f"role/{role}/{name}": size / total for role, size in sorted(sizes.items()) if total}
    for name, policy in learned.items():
        total = sum(part.gradient for part in policy.roles.values())
        roles = {member.sample.role for member in experience[name]}  # a role without a live group has no gradient
        if total and len(roles) > 1:
            line |= {f"role/{role}/policy_share": part.gradient / total for role, part in policy.roles.items()}
    for role, part in sorted((role, part) for policy in learned.values() for role, part in policy.roles.items()):
        line[f"role/{role}/entropy"] = part.entropy
    return line


def memory_metrics(store: Store, episodes: Sequence[FinishedEpisode], counts: Mapping[str, int]) -> dict[str, float]:
    """Returns metrics of memory: its size, its last evolution, and success with and without it."""
    line: dict[str, float] = {"memory/entries": len(store.entries)}
    line |= {f"memory/{what}": count for what, count in sorted(counts.items())}
    for name, masked in (("on", False), ("masked", True)):
        scores = [episode.score for episode in episodes if episode.masked is masked]
        line |= {f"memory/success_{name}": fmean(scores)} if scores else {}
    shown = [len(notes) for episode in episodes for notes in episode.shown.values() if not episode.masked]
    return line | ({"memory/notes": fmean(shown)} if shown else {})


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Returns metrics of a plain evaluation."""
    area = evaluation.split
    return {
        f"{area}/success": evaluation.success,
        f"{area}/success_low": evaluation.success_low,
        f"{area}/success_high": evaluation.success_high,
        f"{area}/turns": evaluation.turns,
        f"{area}/dropped": evaluation.dropped,
        **{f"{area}/reward/{name}": value for name, value in evaluation.rewards.items()},
    }


def add_budget(total: dict[str, int], budget: Budget, learned: Mapping[str, Learned]) -> None:
    """Adds a step's tokens and calls to the run's counters."""
    spent = {
        "prompt_tokens": budget.prompt_tokens,
        "sampled_tokens": budget.sampled_tokens,
        "replies": budget.replies.total(),
        "engine_calls": budget.engine_calls,
        "trained_tokens": int(sum(policy.metrics["trained_tokens"] for policy in learned.values())),
    }
    for name, count in spent.items():
        total[name] = total.get(name, 0) + count


def step_times(began: float, sampled: float, updated: float, budget: Budget, *, ahead: bool) -> dict[str, float]:
    """Returns seconds of this step, and tokens a second: of the rollout, or of the whole step if it samples ahead."""
    rollout = sampled - began
    return {
        "time/rollout": rollout,
        "time/engine": budget.engine_s,
        "time/update": updated - sampled,
        "time/step": time.perf_counter() - began,
        "time/tokens_per_s": budget.sampled_tokens / (updated - began if ahead else rollout),
    }
