"""Measures a team's learning signal: it has one if the replies that it samples now differ in what they earn.

    print(coterie.load(coterie.load_config("plan_path")).signal())

A few train tasks are played exactly as a training step plays them, with the algorithm's own sampler. Nothing is
trained. Reinforcement learning moves a team only by groups whose returns differ (live groups), so how many of them a
step holds, and by which rewards they differ, says before a run whether it can begin.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean
from typing import Literal

from coterie.config.settings import Config
from coterie.errors import ConfigError, RolloutError
from coterie.kernel.engine import Engine
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Member, flat
from coterie.kernel.mistakes import task_of
from coterie.kernel.team import teaches
from coterie.run.credit import credited
from coterie.run.evaluate import readable_share, wilson
from coterie.run.rollout import Rollout, play_tasks, task_index
from coterie.sampling.episodes import TEAM
from coterie.seeds import seed_of

Kind = Literal["signal", "weak", "shaped", "none", "solved", "frozen"]
TASKS, SECONDS = 16, 120.0
"""Maximum number of train tasks that are played, and the seconds after which no further ones begin."""
AT_ONCE = 4
"""Number of tasks that are played together, so that the time limit is looked at now and then."""
FEW_LIVE, FEW_A_STEP = 0.1, 2.0
"""Share of live groups, and number of them in a training step, below which a signal is weak."""
SOLVED = 0.9
"""Success above which groups without a spread mean that a team has nothing left to learn."""
MOST = 0.5
"""Share of replies or groups above which something is named as the reason that nothing is learned."""
RANDOM_NATS, REAL_VOCABULARY = 1.2, 4096
"""Entropy in nats a token above which replies are nearly random, for vocabularies of at least so many tokens."""
COOL = 0.7
"""Temperature that is advised if the model recommends none. Below it, it is not the reason for a high entropy."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Facts about a policy's model: its vocabulary, and a temperature, if its generation_config recommends one."""

    vocabulary: int
    recommended: float | None = None


@dataclass(frozen=True, slots=True)
class RoleSignal:
    """Counts of the groups of a role, and of those that teach it something.

    groups: compared. live: with different returns. team: of these, with different team rewards. spread: the mean
    difference between the best and the worst return of a live group. cut: share of replies that ended at their limit.
    cut_tokens: the mean length of these. said: a reply of a role without a live group; answer: the right one there,
    if the task has one.
    """

    groups: int
    live: int
    team: int
    spread: float
    cut: float
    cut_tokens: float
    said: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Signal:
    """Counts of the groups of a few train tasks, before anything is trained on them, with a verdict.

    Attributes:
        tasks: tasks played; wanted: tasks asked for; lost: tasks that met a fault.
        episodes, success: main episodes, and the share of them that was solved.
        groups: groups compared; live: those with something to learn, as the metric groups/live counts them.
        team: live groups in which the team's reward differs. Where an algorithm keeps no parts of a return, any
            difference counts.
        cut: live groups in which only the replies that were cut at their limit earned something else.
        alike: groups whose replies are all the same.
        a_step: live groups to expect in one training step.
        differs: in how many live groups each named reward differs.
        roles: by role.
        entropy: mean negative log-probability of a sampled token at its temperature, in nats, by trained policy.
        best: main episodes go on with the best reply of each group, so more of them are solved than the team solves.
        readable: share of the replies of main episodes that the environment could read, where it notes that. With
            `best` it is more than the share of all replies.
        advice: things to do, one sentence each.
    """

    tasks: int
    wanted: int
    lost: int
    episodes: int
    success: float
    groups: int
    live: int
    team: int
    cut: int
    alike: int
    a_step: float
    kind: Kind
    differs: Mapping[str, int] = field(default_factory=dict[str, int])
    roles: Mapping[str, RoleSignal] = field(default_factory=dict[str, RoleSignal])
    entropy: Mapping[str, float] = field(default_factory=dict[str, float])
    best: bool = False
    readable: float | None = None
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.verdict

    @property
    def verdict(self) -> str:
        """One line that says whether RL has a signal, and what to do if it has none."""
        share = _percent(self.live / max(1, self.groups))
        some, names = f"{self.live} of {self.groups} groups ({share})", ", ".join(self.differs) or "nothing"
        most = _percent(wilson(0.0, max(1, self.groups))[1])
        why = (
            "only because some replies were cut at their limit"
            if self.cut == self.live
            else f"only by {names}; the team's reward is the same in every group"
        )
        line = {
            "signal": f"RL has a signal: {share} of {self.groups} groups have different returns, and the team's reward "
            f"differs in {self.team}",
            "weak": f"RL has a weak signal: {some} have different returns, about {self.a_step:.1f} a training step",
            "shaped": f"RL has a signal for local rewards alone: {some} have different returns, {why}, and no episode "
            "was solved: success rises only if those rewards lead to it",
            "none": f"RL has no signal: 0 of {self.groups} groups have different returns (at most {most} of them, by "
            "the 95 % interval)",
            "solved": f"RL has nothing to teach: {_percent(self.success)} of {self.episodes} episodes are solved, and "
            f"{self.live} of {self.groups} groups have different returns",
            "frozen": "RL has nobody to teach: every policy of the team is frozen",
        }[self.kind]
        return "; ".join([line, *self.advice])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def measure_signal(
    config: Config,
    engine: Engine,
    *,
    tasks: int = TASKS,
    seconds: float = SECONDS,
    step: int = 0,
    speakers: Mapping[str, Speaker] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Signal:
    """Plays train tasks as a training step does, and says what could be learned from them.

    An episode ends before a call with an external effect, and is lost.

    Args:
        tasks: that are played at most.
        seconds: after which no further tasks are begun; some are always played.
        step: whose rollout it is, for seeds.
        speakers: facts about the models of trained policies, for advice about the temperature.
        progress: called with (tasks done, tasks).

    Raises:
        ConfigError: no task is asked for.
        RolloutError: no task could be played.
    """
    if tasks < 1:
        raise ConfigError(f"tasks = {tasks}; it is at least 1")
    count = config.environment.count("train")
    tasks = tasks if count is None else min(tasks, count)
    indices = [task_index(config.environment, config.train.seed, place, tasks) for place in range(tasks)]
    parts: list[Rollout] = []
    began, done = time.perf_counter(), 0
    while done < tasks and (not done or time.perf_counter() - began < seconds):
        parts.append(play_tasks(config, engine, step, indices[done : done + AT_ONCE], None, trial=True))
        done = min(tasks, done + AT_ONCE)
        if progress:
            progress(done, tasks)
    rollout = Rollout.whole(parts)
    if not rollout.played:
        raise RolloutError(
            f"none of {done} train tasks could be played: {dict(rollout.budget.dropped)}{rollout.budget.often()}"
        )
    return _judged(_counted(config, rollout, done, tasks), config, speakers or {})


def _counted(config: Config, rollout: Rollout, done: int, wanted: int) -> Signal:
    """Returns counts of a rollout's groups, without a verdict."""
    groups = [group for task in rollout.played for group in task.collected.groups]
    logs = [log for task in rollout.played for log in task.collected.logs]
    beside = _beside(groups)
    live = [group for group in _live(config, groups) if len(group.members) > 1 or not flat(beside(group).values)]
    named = Counter(name for group in live for name in _differing(beside(group)))
    budget, played = rollout.budget, len(rollout.played)
    roles: dict[str, RoleSignal] = {}
    for role in sorted(budget.replies):
        if not config.team.learns(role):
            continue
        mine, lively = ([group for group in some if role in _speakers(group)] for some in (groups, live))
        roles[role] = RoleSignal(
            groups=len(mine),
            live=len(lively),
            team=sum(_team_differs(beside(group)) for group in lively),
            spread=fmean(_spread(beside(group)) for group in lively) if lively else 0.0,
            cut=budget.truncated[role] / budget.replies[role],
            cut_tokens=budget.cut_tokens[role] / max(1, budget.truncated[role]),
            **({} if lively else _example(config, rollout, role)),
        )
    return Signal(
        tasks=done,
        wanted=wanted,
        lost=rollout.lost,
        episodes=len(logs),
        success=fmean(log.solved for log in logs) if logs else 0.0,
        groups=len(groups),
        live=len(live),
        team=sum(_team_differs(beside(group)) for group in live),
        cut=sum(_only_cut(beside(group)) for group in live),
        alike=sum(group.alike for group in groups if len(group.members) > 1),
        a_step=len(live) / played * config.train.tasks_per_step,
        kind="none",
        differs=dict(named.most_common()),
        roles=roles,
        entropy=_entropy(config, groups),
        best=getattr(config.algorithm, "commit", "") == "greedy",
        readable=readable_share(logs),
    )


def _beside(groups: Sequence[Group]) -> Callable[[Group], Group]:
    """Returns a function that gives what to compare a group in: itself, or all groups of one member of its role.

    Groups of one have their baseline from elsewhere. Their returns say something only beside each other.
    """
    lone: dict[str, list[Member]] = {}
    for group in groups:
        if len(group.members) == 1:
            lone.setdefault(group.key.role, []).extend(group.members)

    def beside(group: Group) -> Group:
        if len(group.members) > 1:
            return group
        return replace(group, scope="task", members=tuple(lone[group.key.role]), committed=None)

    return beside


def _spread(group: Group) -> float:
    return max(group.values) - min(group.values)


def _live(config: Config, groups: Sequence[Group]) -> list[Group]:
    """Returns the groups that a first training step would learn from."""
    algorithm = config.algorithm
    chosen = algorithm.select(groups, Random(seed_of("select", config.train.seed, 0)))
    earned, _ = credited(algorithm, chosen, algorithm.start())
    credit = {group.key: numbers for group, numbers in zip(chosen, earned, strict=True)}
    return [group for group in groups if teaches(group, credit.get(group.key, ()))]


def _speakers(group: Group) -> set[str]:
    return {sample.role for member in group.members for sample in member.samples}


def _differing(group: Group) -> list[str]:
    """Returns the names of the rewards by which the members of a group differ."""
    names = sorted({name for member in group.members for name in member.parts})
    return [name for name in names if not flat([member.parts.get(name, 0.0) for member in group.members])]


def _team_differs(group: Group) -> bool:
    """Returns True if the team's reward differs within a group; rewards of later points count as the team's."""
    if not any(member.parts for member in group.members):
        return True
    return not flat([_team_part(member) for member in group.members])


def _team_part(member: Member) -> float:
    ours = (TEAM, "later")
    return sum(value for name, value in member.parts.items() if name in ours or name.startswith(f"{TEAM}/"))


def _only_cut(group: Group) -> bool:
    """Returns True if members earned different returns only because some of them were cut at their limit."""
    cut: tuple[list[float], list[float]] = [], []
    for member in group.members:
        cut[any(sample.finish == "length" for sample in member.samples)].append(member.value)
    return all(cut) and all(map(flat, cut)) and not flat(group.values)


def _entropy(config: Config, groups: Sequence[Group]) -> dict[str, float]:
    """Returns the mean entropy of a sampled token in nats, by trained policy."""
    samples = {sample.seed: sample for group in groups for member in group.members for sample in member.samples}
    drawn: dict[str, list[Sample]] = {}
    for sample in samples.values():
        if sample.policy in config.team.trained and sample.completion_ids and sample.temperature:
            drawn.setdefault(sample.policy, []).append(sample)
    return {
        policy: -sum(map(sum, (sample.logprobs for sample in mine))) / sum(len(sample.logprobs) for sample in mine)
        for policy, mine in sorted(drawn.items())
    }


def _example(config: Config, rollout: Rollout, role: str) -> dict[str, str]:
    """Returns a reply of a role and the right answer of its task, if it has one."""
    for task in rollout.played:
        for group in task.collected.groups:
            if group.key.role == role and (said := group.members[0].samples[0].text.strip()):
                asked = task_of(config.environment, task.split, task.index)
                return {"said": said, "answer": str(getattr(asked, "answer", ""))}
    return {}


def _judged(signal: Signal, config: Config, speakers: Mapping[str, Speaker]) -> Signal:
    """Returns the same signal with the kind of its verdict, and advice."""
    signal = replace(signal, kind=_kind(signal, config))
    if signal.kind in ("solved", "frozen"):
        return signal
    heat = list(_temperature(signal, config, speakers))
    if signal.kind == "signal":
        return replace(signal, advice=(*_idle(signal), *_examples(signal), *_cut(signal, config), *heat))
    causes = [*_causes(signal, config), *_examples(signal), *heat]
    if not causes:
        causes = [
            "give it tasks that it solves sometimes: easier ones, a shorter prompt that says the form of a reply in "
            "one line, a larger model, or demonstrations first"
        ]
    return replace(signal, advice=tuple(causes))


def _kind(signal: Signal, config: Config) -> Kind:
    """Returns the kind of verdict that the counts of a signal call for."""
    if not config.team.trained:
        return "frozen"
    share = signal.live / max(1, signal.groups)
    if share < FEW_LIVE and signal.success >= SOLVED:
        return "solved"
    if not signal.live:
        return "none"
    if not signal.success and (signal.cut == signal.live or not signal.team):
        return "shaped"
    return "weak" if share < FEW_LIVE or signal.a_step < FEW_A_STEP else "signal"


def _causes(signal: Signal, config: Config) -> Iterator[str]:
    """Yields the reasons for a missing signal that the numbers show, each with what to do."""
    if signal.readable is not None and signal.readable < MOST:
        read = _percent(signal.readable)
        yield f"only {read} of replies can be read: say the form of a reply in one line, with an example"
    yield from _cut(signal, config)
    if signal.groups and signal.alike > MOST * signal.groups:
        yield (
            f"in {signal.alike} groups all replies are the same: raise train.temperature, or draw more replies "
            "(algorithm.num_generations)"
        )
    starter, given = config.environment.starter, config.environment.model_dump().get("brief")
    if given is True and any(config.policies[name].model != starter for name in config.team.trained):
        yield "prompts are the short ones that only the starter knows: set environment.brief = false"


def _idle(signal: Signal) -> Iterator[str]:
    """Yields a line about the roles without a signal of their own, if another role has one."""
    if idle := [f"{role} (0 of {mine.groups})" for role, mine in signal.roles.items() if mine.groups and not mine.live]:
        yield (
            f"not for {', '.join(idle)}: so far nothing that a role says there changes what it earns; read its replies "
            "(coterie eval CONFIG --sampled 8)"
        )


def _examples(signal: Signal) -> Iterator[str]:
    """Yields a line about each role that earns the same whatever it says: what it says, and what would be right."""
    for role, mine in signal.roles.items():
        if mine.said and mine.groups:
            right = f", where the answer is {mine.answer!r:.60}" if mine.answer else ""
            yield f"{role} says, for example, {mine.said!r:.80}{right}; if that should earn something, mend the reward"


def _cut(signal: Signal, config: Config) -> Iterator[str]:
    """Yields a line about the roles that do not end their replies. One token is a choice, and has no end."""
    limits = [name for name in type(config.environment).model_fields if name.endswith("_tokens")]
    raised = " or ".join(f"environment.{name}" for name in limits) or "max_tokens where play asks, or engine.max_tokens"
    training = "training may mend it; else " if signal.kind == "signal" else ""
    roles = signal.roles.items()
    if cut := [f"{role} {_percent(mine.cut)}" for role, mine in roles if mine.cut > MOST and mine.cut_tokens > 1]:
        yield (
            f"many replies are cut at their limit ({', '.join(cut)}): {training}raise {raised}, or ask for shorter "
            "replies"
        )


def _temperature(signal: Signal, config: Config, speakers: Mapping[str, Speaker]) -> Iterator[str]:
    """Yields advice about the temperature, once for each setting."""
    sampling, known = config.sampling(), set[str]()
    for name, speaker in speakers.items():
        policy, now, nats = config.policies[name], sampling.of(name), signal.entropy.get(name, 0.0)
        setting = "train.temperature" if policy.temperature is None else f"policies.{name}.temperature"
        wanted = speaker.recommended
        cooler = wanted or COOL
        if speaker.vocabulary >= REAL_VOCABULARY and nats > RANDOM_NATS and cooler < now:
            text = (
                f"replies are nearly random at temperature {now:g} ({nats:.1f} nats a token): set {setting} = "
                f"{cooler:g}"
            )
        elif wanted is not None and wanted > 0 and abs(wanted - now) > 0.05:
            text = (
                f"the model's generation_config recommends temperature {wanted:g}, and it is sampled at {now:g}: set "
                f"{setting} = {wanted:g}"
            )
        else:
            continue
        if setting not in known:
            known.add(setting)
            yield text
