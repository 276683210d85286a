"""Scaling of a team's training: a simulation of the stages of a run, validated by measurements on two cores.

Writes docs/scaling.md. In the simulation, engines serve waves one after another and the run's process coordinates them.
The time of each stage is measured (`python -m benchmarks overlap`) or computed from the GPU data of `coterie plan`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks import overlap as measured
from coterie.bench import Say
from coterie.checks.machines import gpu
from coterie.kernel.safe import plain
from coterie.run.folder import Run
from coterie.run.measured import BUSY, LAYER_S

PAGE = Path("docs/scaling.md")
STEPS = 60
"""Number of steps of a simulated run; the first ten are left out."""
BOUND = 0.15
"""Share by which a simulated step may differ from a measured one."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds that the stages of a training step take.

    waves: of a rollout, one after another: which pool's engines answer, and how long. update: of the slowest pool's
    ranks. drive: of the run's process, credit and bookkeeping. sync: until engines have the new weights.
    """

    waves: Sequence[tuple[int, float]]
    update: float
    drive: float
    sync: float


class Simulated:
    """A simulated run whose stages take given times. `ahead`: rollouts that are played ahead."""

    def __init__(self, stages: Stages, ahead: int, steps: int = STEPS) -> None:
        self.stages = stages
        self.ahead = ahead
        self.steps = steps
        self.now = 0.0
        self.ends: list[float] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._queues = {pool: deque[tuple[float, Callable[[], None]]]() for pool, _ in stages.waves}
        self._busy = dict.fromkeys(self._queues, False)
        self._done: set[int] = set()
        self._sent = 0
        self._waits = -1
        self._begin(0)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    @property
    def step_s(self) -> float:
        """Seconds of a step once all are under way, without the last, beside which no more rollouts run."""
        ends = self.ends[9 : len(self.ends) - self.ahead]
        return (ends[-1] - ends[0]) / (len(ends) - 1)

    def _at(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def _served(self, pool: int, seconds: float, then: Callable[[], None]) -> None:
        """Queues something for a pool's engines, and calls `then` when they have served it."""
        self._queues[pool].append((seconds, then))
        self._next(pool)

    def _next(self, pool: int) -> None:
        if self._busy[pool] or not self._queues[pool]:
            return
        self._busy[pool] = True
        seconds, then = self._queues[pool].popleft()

        def over() -> None:
            self._busy[pool] = False
            then()
            self._next(pool)

        self._at(seconds, over)

    def _begin(self, step: int) -> None:
        """Begins a step as the run's process does: sends rollouts ahead, and waits for this step's."""
        if step == self.steps:
            return
        while self._sent < min(step + self.ahead + 1, self.steps):
            self._rollout(self._sent, iter(self.stages.waves))
            self._sent += 1
        self._waits = step
        self._learn()

    def _rollout(self, step: int, waves: Iterator[tuple[int, float]]) -> None:
        wave = next(waves, None)
        if wave is None:
            self._done.add(step)
            self._learn()
        else:
            self._served(*wave, lambda: self._rollout(step, waves))

    def _learn(self) -> None:
        if self._waits in self._done:
            self._done.remove(step := self._waits)
            self._at(self.stages.update + self.stages.drive, lambda: self._sync(step))

    def _sync(self, step: int) -> None:
        """Gives each pool the new weights once its present answer is over, and then begins the next step."""
        left = len(self._queues)

        def taken() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.ends.append(self.now)
                self._begin(step + 1)

        for pool in self._queues:
            self._queues[pool].appendleft((self.stages.sync, taken))
            self._next(pool)


def two_cores(way: str, seed: int, *, foretold: bool = False) -> Stages:
    """Returns the stages of the run that took turns, scaled to the work in the run of this seed and way.

    Args:
        foretold: whether an update takes what its tokens took in turns; else what it took in the run itself.
    """
    told = measured.trained("0", seed)
    waves, sampled, learned, _ = (mine / turns for mine, turns in zip(work(way, seed), work("0", seed), strict=True))
    update = told["update"] * learned if foretold else measured.trained(way, seed)["update"]
    count = max(1, round(work("0", seed)[0] * waves))
    drive = told["step"] - told["rollout"] - told["update"]
    return Stages([(0, told["rollout"] * sampled / count)] * count, update, drive, 0.0)


def driven() -> float:
    """Returns seconds of the run's process per sample, outside of rollout and update, in the runs that took turns."""
    each = [two_cores("0", seed).drive / work("0", seed)[3] for seed in measured.SEEDS]
    return fmean(each)


def work(way: str, seed: int) -> tuple[float, float, float, float]:
    """Returns the work in a step of a run: waves, tokens sampled, tokens trained, replies; medians."""
    lines = [line for line in Run(measured.folder_of(way, seed)).metrics() if line["step"]]
    steps = list(itertools.pairwise(lines))
    waves, sampled, replies = (
        median(later[f"budget/{name}"] - earlier[f"budget/{name}"] for earlier, later in steps)
        for name in ("engine_calls", "sampled_tokens", "replies")
    )
    return waves, sampled, median(line.get("policy/team/trained_tokens", 0.0) for line in lines), replies


@dataclass(frozen=True, slots=True)
class Team:
    """A team on GPUs: roles that speak one after another in each turn, a policy a role or an adapter on one base.

    size: parameters of a policy. layers: of its network. prompt, reply: tokens of a question and of its answer. turns:
    of an episode. samples: replies to one question.
    """

    roles: int
    size: float = 1.7e9
    layers: int = 28
    prompt: int = 700
    reply: int = 500
    turns: int = 3
    samples: int = 4
    adapters: bool = False


NVLINK, NETWORK, COPY = 400e9, 40e9, 2e9
"""Bytes a second: between GPUs of a machine, between machines, and through a process that packs weights."""
PASSES = 4
"""Number of copies of new weights: a rank packs, the run's process unpacks and packs, an engine unpacks."""
SAMPLE_S = 150e-6
"""Seconds that the run's process is assumed to need for a sample: credit, ledger, experience."""
GRAPH = 0.1
"""Share of the time that `coterie plan` takes for a layer and token by modules; the engine's graphs take 0.25."""
DOLLARS = 2.5
"""Dollars that a GPU costs per hour."""


def stages_of(team: Team, gpus: int, tasks: int, engines_share: float = 0.5) -> Stages:
    """Returns the stages of a team's step on so many H100s.

    Args:
        tasks: of a step.
        engines_share: of GPUs that sample; the others learn.
    """
    machine, pools = gpu("h100-80"), 1 if team.adapters else team.roles
    mine = max(1, gpus // pools)
    engines = max(1, round(mine * engines_share))
    ranks = max(1, mine - engines)
    colocated = (
        pools * (engines + ranks) / gpus if gpus < pools * (engines + ranks) else 1.0
    )  # they share what there is
    speed = BUSY * machine.bfloat16
    rows = tasks * team.samples / engines
    least = team.layers * LAYER_S * GRAPH
    a_token = max(2 * team.size / machine.bandwidth + least, 2 * team.size * rows / speed)
    wave = 2 * team.size * team.prompt * tasks / engines / speed + team.reply * a_token
    order = [role % pools for _ in range(team.turns) for role in range(team.roles)]
    samples = tasks * team.samples * team.turns * team.roles
    tokens = samples / pools * (team.reply + team.prompt / team.samples)
    link = NVLINK if ranks <= 8 else NETWORK
    trained = team.size / 100 if team.adapters else team.size
    batches = max(1.0, tokens / ranks / 16384)
    together = batches * 3 * 2 * team.size * (ranks > 1) / link
    update = 8 * team.size * tokens / ranks / speed + together
    machines = max(1, math.ceil(gpus / 8))
    weights = 4 * trained * pools
    hops = math.ceil(math.log2(machines)) if machines > 1 else 0
    sync = weights / COPY * PASSES + weights * hops / NETWORK
    return Stages([(pool, wave * colocated) for pool in order], update * colocated, samples * SAMPLE_S, sync)


def run(say: Say) -> dict[str, Any]:
    """Compares the simulation with measurements, writes the page with its projections, and returns the worst error.

    Raises:
        AssertionError: a simulated step is too far from a measured one.
    """
    checked = [compared(way) for way in measured.WAYS]
    for way, one in zip(measured.WAYS, checked, strict=True):
        say(f"{measured.WAYS[way][0]}: {one[0]:.2f} s simulated, {one[2]:.2f} s measured")
    worst = max(abs(one[0] / one[2] - 1) for one in checked)
    PAGE.write_text(plain("\n".join(page(checked))))
    if worst > BOUND:
        raise AssertionError(f"the simulation is {worst:.0%} off")
    return {"worst": round(worst, 4)}


def compared(way: str) -> tuple[float, float, float]:
    """Returns the seconds of a step, means over seeds: simulated, the same with a foretold update, and measured."""
    ahead, seeds = int(way[0]), measured.seeds_of(way)
    simulated, foretold = (
        fmean(Simulated(two_cores(way, seed, foretold=foretold), ahead).step_s for seed in seeds)
        for foretold in (False, True)
    )
    return simulated, foretold, fmean(measured.trained(way, seed)["step"] for seed in seeds)


def best(team: Team, gpus: int, tasks: int, ahead: int) -> tuple[float, float]:
    """Returns the seconds of a step with the best share of GPUs that sample, and that share."""
    shares = (0.25, 0.375, 0.5, 0.625, 0.75)
    return min((Simulated(stages_of(team, gpus, tasks, share), ahead).step_s, share) for share in shares)


def page(checked: Sequence[tuple[float, float, float]]) -> list[str]:
    """Returns the lines of the page on scaling."""
    lines = [
        "# How far it scales",
        "",
        "Written by `python -m benchmarks scaling`. All numbers for more than two CPU cores come from a simulation.",
        "",
        "In the simulation, a step's rollout is a sequence of waves. A wave is a set of requests that the engines "
        "answer in one batch. It waits for the engines of its role's [pool](cluster.md#components). The run's process "
        "starts later rollouts ahead of time, waits for the rollout of the current step, and "
        "trains on it. It then sends the new weights to the engines, which load them after their current wave. The "
        "duration of each stage is an input of the simulation; the waiting times are its output.",
        "",
        "## Comparison with measurements",
        "",
        "The stage durations of [the runs that took turns](results/overlap.md), where rollout and training alternate, "
        "are used to simulate runs with rollouts ahead. The table compares the simulated with the measured seconds per "
        "step, as means over seeds. The duration of waves is scaled by the number of tokens that the measured run "
        "sampled, because a team that learned less plays longer. The duration of an update is taken from the measured "
        "run itself. The comparison therefore tests only the waiting times. In the last column the update time is "
        "predicted too: it is taken from the runs that took turns and scaled by the number of trained tokens. This "
        "prediction is too low, because a token takes longer when the other core is busy and the run's process shares "
        "the learner's core.",
        "",
        "| | simulated, s per step | measured, s per step | difference | difference with predicted update |",
        "|---|---|---|---|---|",
    ]
    for way, (simulated, foretold, took) in zip(measured.WAYS, checked, strict=True):
        lines.append(
            f"| {measured.WAYS[way][0]} | {simulated:.2f} | {took:.2f} | {simulated / took - 1:+.0%} | "
            f"{foretold / took - 1:+.0%} |"
        )
    whole, adapters = Team(2), Team(2, adapters=True)
    lines += [
        "",
        "## Prediction for GPUs",
        "",
        "Assumptions: H100 GPUs with their published specifications, of which matrix multiplications reach 40 %, as in "
        f"`coterie plan`; policies of 1.7 billion parameters; prompts of {whole.prompt} tokens, with {whole.samples} "
        f"replies of {whole.reply} tokens to each; {whole.turns} turns in which the roles speak one after another; "
        f"{NVLINK / 1e9:.0f} GB/s within a machine and {NETWORK / 1e9:.0f} GB/s between machines; weights packed at "
        f"{COPY / 1e9:.0f} GB/s; at least {1e3 * GRAPH * LAYER_S:.1f} ms per layer and decoded token; "
        f"{SAMPLE_S * 1e6:.0f} microseconds of the run's process per sample (on two cores it took "
        f"{driven() * 1e6:.0f}); {DOLLARS} dollars per GPU hour. In each case, the share of GPUs that "
        "sample (the others train) is the best of five values. Rollouts run one step ahead.",
        "",
        "**A step of 256 tasks with two roles, on an increasing number of GPUs:**",
        "",
        *_fixed(whole, adapters),
        "",
        "**Four tasks per GPU, one policy per role.** Each cell gives thousands of replies per second and, in "
        "parentheses, the throughput per GPU relative to that with 8 GPUs. With 8 GPUs, the 8 or 16 policies of the "
        "last two columns share the GPUs and wait for each other, so their values can be above 100%:",
        "",
        *_grown(),
        "",
        "## What limits scaling",
        "",
        *_why(),
        "",
        "- **A step of fixed size** cannot be shorter than its longest episode. The tokens of a reply, the turns and "
        "the roles come one after another, whatever the number of GPUs. With more GPUs, this time and the transfer of "
        "weights make up a larger share of the step.",
        f"- **New weights** are transferred one policy after another, and each is copied {PASSES} times: a rank packs "
        "them, the run's process unpacks and packs them, and an engine unpacks them. Direct transfer between GPUs "
        "would run at network speed. Adapters are so small that they do not need it.",
        "- **The run's process** alone computes the credit of every sample, routes it and writes it to disk. With "
        "4,096 tasks per step this takes a fifth of the time. For larger steps, several processes would have to share "
        "this work.",
        "- **Roles** are trained in parallel, each in its own pool. Their cost is the transfer of their weights: most "
        "of a step with sixteen full policies, and almost nothing with adapters on one base. A pool also waits while "
        "another role speaks. With one policy per role, the engines of most roles would be idle if rollouts did not "
        "run ahead.",
        "",
    ]
    return lines


def _fixed(whole: Team, adapters: Team) -> list[str]:
    lines = [
        "| GPUs | one policy per role: seconds per step | dollars for 1,000 steps | adapters on one base: seconds per "
        "step | dollars for 1,000 steps |",
        "|---|---|---|---|---|",
    ]
    for gpus in (1, 8, 16, 64, 256, 1024):
        cells = []
        for team in (whole, adapters):
            seconds, _ = best(team, gpus, 256, 1)
            cells += [f"{seconds:,.1f}", f"{1000 * seconds * gpus * DOLLARS / 3600:,.0f}"]
        lines.append(f"| {gpus:,} | {' | '.join(cells)} |")
    return lines


def _grown() -> list[str]:
    roles = (2, 4, 8, 16)
    lines = [f"| GPUs | {' | '.join(f'{count} roles' for count in roles)} |", "|---|" + "---|" * len(roles)]
    base: dict[int, float] = {}
    for gpus in (8, 16, 64, 256, 1024):
        cells = []
        for count in roles:
            team = Team(count)
            seconds, _ = best(team, gpus, 4 * gpus, 1)
            rate = 4 * gpus * team.samples * team.turns * count / seconds
            base.setdefault(count, rate / gpus)
            cells.append(f"{rate / 1000:.2f} ({rate / gpus / base[count]:.0%})")
        lines.append(f"| {gpus:,} | {' | '.join(cells)} |")
    return lines


def _why() -> list[str]:
    """Returns a table of the time of a small and a large step on 1,024 GPUs with each part left out."""
    lines = [
        "Each cell gives the time of a step if one part took no time, as a share of the time of the step with all "
        "parts. A small share means that this part limits the step.",
        "",
    ]
    lines += ["| | 256 tasks on 1,024 GPUs | 4,096 tasks on 1,024 GPUs |", "|---|---|---|"]
    without: dict[str, Callable[[Stages], Stages]] = {
        "rollouts": lambda one: replace(one, waves=[(pool, 0.0) for pool, _ in one.waves]),
        "updates": lambda one: replace(one, update=0.0),
        "the run's process": lambda one: replace(one, drive=0.0),
        "new weights": lambda one: replace(one, sync=0.0),
    }
    cells: dict[str, list[str]] = {name: [] for name in without}
    for tasks in (256, 4096):
        seconds, share = best(Team(2), 1024, tasks, 1)
        stages = stages_of(Team(2), 1024, tasks, share)
        for name, change in without.items():
            cells[name].append(f"{Simulated(change(stages), 1).step_s / seconds:.0%}")
    lines += [f"| without {name} | {' | '.join(each)} |" for name, each in cells.items()]
    return lines
