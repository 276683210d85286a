"""Warnings about a run: roles that learn nothing, policies that collapse, environments without a learning signal.

They are computed only from metrics.jsonl, so a display, a report and a resumed run show the same warnings.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

Line = Mapping[str, float]
WINDOW, ENOUGH = 20, 10
"""Steps that a warning looks back on at most, and those that one about the balance of roles or a dead role needs."""
FEW_LIVE = 0.1
"""Share of live groups below which groups are mostly dead."""
DOMINANT = 0.9
"""Share of the gradient, or of the advantage, above which a role is dominant."""
LAZY_POINTS = 0.02
"""Success, as a share, that muting a role may cost: the role is lazy if it surely costs less."""
SOON = 5
"""Steps that a warning of something sudden looks back on, and those after which a role or most groups may be dead."""
CEILING = 0.9
"""Success above which nothing more need be learned: little entropy and a flat curve are as they should be."""
COLLAPSED = 0.02
"""Entropy in nats below which a policy says always the same."""
EXPLODED, MANIFOLD = 2.0, 3.0
"""Entropy in nats, and multiple of the entropy at the start, above which a policy says anything."""
SPIKE, BEFORE = 100.0, 10
"""Multiple of the median gradient norm that makes a spike, and the steps that the median needs."""
LOOK_BACK = 100
"""Number of lines that any warning looks back on, but for those of the start, validations and probes."""
MISMATCH = 0.1
CORRECTED = 0.1
"""Nats of mismatch of engine and learner, and share of tokens cut by the correction, above which a warning comes."""
CUT, CUT_AT_ONCE = 0.5, 0.8
"""Shares of cut replies above which a role does not end what it says: in SOON steps in a row, and from the first on."""
ALIKE, ALIKE_AT_ONCE = 0.8, 0.95
"""Shares of groups of equal replies above which a role says always the same: in SOON steps, and from the first on."""
FLAT = 4
"""Number of validations without a rise that make a flat curve."""
DIVERGED = 2
"""Number of validations in a row surely below the start's that make a divergence."""
OVERLONG = 3
"""Number of the last SOON steps in which a prompt must have outgrown the context for a warning."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A warning. role: the one that it is about, or "" for the whole team. advice: what to do."""

    kind: Literal[
        "dead", "lazy", "dominant", "captured", "mostly_dead", "no_memory", "collapsed", "exploded", "stuck", "spike",
        "mismatch", "corrected", "cut", "overlong", "flat", "fallen", "diverged", "no_reward", "no_outcome", "unasked",
        "no_signal", "alike",
    ]  # fmt: skip
    role: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}: {self.advice}"


def concerns(
    lines: Sequence[Line],
    roles: Sequence[str],
    policies: Iterable[str] | None = None,
    asked: Collection[str] | None = None,
) -> list[Concern]:
    """Returns the warnings that hold at the last of a run's lines, by role in the order given.

    Args:
        lines: of metrics.jsonl, from the first.
        roles: the team's.
        policies: that have been trained so far, where that is known.
        asked: the roles that have been asked anything so far, where that is known.
    """
    trained = [line for line in lines if "groups/total" in line]
    success = [line["validation/success"] for line in lines if "validation/success" in line]
    at_ceiling = bool(success) and success[-1] >= CEILING
    named = _named(trained) if policies is None else policies
    heard = _asked(trained) if asked is None else asked
    unheard = [role for role in roles if heard and role not in heard]
    raised = [*_silent_play(trained, solved=any(success)), *_policies(trained, named, at_ceiling), *_validation(lines)]
    raised += [_unasked(role) for role in unheard]
    silent = any(concern.kind in ("unasked", "no_reward") and not concern.role for concern in raised)
    hopeless = [] if silent else _no_signal(trained, at_ceiling=at_ceiling)
    raised += hopeless
    for role in roles:
        raised += [] if at_ceiling else [*_cut(role, trained[-SOON:]), *_alike(role, trained[-SOON:])]
        raised += _overlong(role, trained[-SOON:])
    steps = trained[-WINDOW:]
    dead = [] if hopeless else [concern for role in roles if role not in unheard for concern in _dead(role, steps)]
    raised += dead
    alive = [role for role in roles if role not in {concern.role for concern in dead} | {*unheard}]
    if len(steps) >= ENOUGH:
        for role in alive:
            others = [other for other in alive if other != role]
            raised += _captured(role, steps, others) or _dominant(role, steps, others)
    if len(steps) >= SOON:
        if alive and not hopeless:
            raised += _mostly_dead(steps)
        raised += _no_memory(steps)
    for role in alive:
        raised += _lazy(role, lines)
    return raised


class WarningWatch:
    """A watch that says which warnings arise while it sees a run's lines one by one.

    Of those that are longer ago it keeps what `concerns` asks for, so that a line takes as long in a long run.
    """

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._recent: deque[_Numbered] = deque(maxlen=LOOK_BACK)
        self._old: list[_Numbered] = []
        self._known: set[tuple[str, str]] = set()
        self._policies: set[str] = set()
        self._asked: set[str] = set()
        self._seen = self._begun = 0
        self._outcome = self._live = False
        self._started: Counter[str] = Counter()

    def see(self, line: Line) -> list[Concern]:
        """Returns the concerns that this line raises and the one before did not."""
        one = _Numbered(self._seen, line, first=self._first(line))
        self._seen += 1
        self._policies |= _named([line])
        self._asked |= _asked([line])
        if one.first or any(key.startswith(("validation/", "mute/")) for key in line):
            self._old = list(_telling([*self._old, one], self._roles))
        self._recent.append(one)
        lines = [line for _, line in sorted({each.number: each.line for each in (*self._old, *self._recent)}.items())]
        now = concerns(lines, self._roles, self._policies, self._asked)
        new = [concern for concern in now if (concern.kind, concern.role) not in self._known]
        self._known = {(concern.kind, concern.role) for concern in now}
        return new

    def _first(self, line: Line) -> bool:
        """Returns True if it is one of the first lines of the run or a policy, or has its first outcome or live one."""
        trained = "groups/total" in line
        self._begun += trained
        started = [name for name in _named([line]) if self._started[name] < SOON and f"policy/{name}/entropy" in line]
        self._started.update(started)
        outcome = not self._outcome and line.get("rollout/no_outcome", 1) < 1
        live = not self._live and line.get("groups/live", 0) > 0
        self._outcome |= outcome
        self._live |= live
        return (trained and self._begun <= SOON) or outcome or live or bool(started)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A line with its number. first: whether it is one of the first of its kind."""

    number: int
    line: Line
    first: bool


def _telling(old: Sequence[_Numbered], roles: Sequence[str]) -> Iterator[_Numbered]:
    """Yields the lines that still count: first ones, the first, best and latest validations, and a probe a role."""
    validated = [one for one in old if "validation/success_low" in one.line]
    kept = {one.number for one in [*validated[:1], *validated[-FLAT - 1 :]]}
    if validated:
        kept.add(max(reversed(validated), key=lambda one: one.line["validation/success"]).number)
    for role in roles:
        probes = [one for one in old if f"mute/{role}/change" in one.line]
        kept |= {one.number for one in probes[-1:]}
    yield from (one for one in old if one.first or one.number in kept)


def history(lines: Sequence[Line], roles: Sequence[str]) -> list[tuple[int, Concern]]:
    """Returns each concern with the step at which it arose; one that passes and comes back is there twice."""
    watch = WarningWatch(roles)
    return [(int(line["step"]), concern) for line in lines for concern in watch.see(line)]


def _dead(role: str, steps: Sequence[Line]) -> list[Concern]:
    steps = steps[-ENOUGH:]
    if len(steps) < SOON or any(line.get(f"role/{role}/live_groups", 0) for line in steps):
        return []
    return [
        Concern(
            "dead", role, f"role '{role}' is dead: for {len(steps)} steps no group of its replies differed in return",
            "unless success is at its ceiling, check that its replies are compared and can change its reward (coterie "
            "play RUN --step STEP --tree), then raise num_generations or the temperature",
        )
    ]  # fmt: skip


def _unasked(role: str) -> Concern:
    return Concern(
        "unasked", role, f"role '{role}' was asked nothing so far, and learns nothing",
        "have play ask it, or leave it out of roles",
    )  # fmt: skip


def _no_signal(steps: Sequence[Line], *, at_ceiling: bool) -> list[Concern]:
    """Warns if no group has been live since the run began. at_ceiling: nothing more need be learned."""
    total = sum(line["groups/total"] for line in steps)
    if not total or any(line["groups/live"] for line in steps):
        return []
    same = [value for key, value in steps[-1].items() if key.startswith("role/") and key.endswith("/same_share")]
    advice = (
        "the tasks are too hard for it, or the reward does not tell its replies apart: read some (coterie play RUN "
        "--step 1 --tree), then use easier tasks, pay for what is partly right, draw more replies a group "
        "(algorithm.num_generations), or use a better model"
    )
    if at_ceiling or all(line.get("rollout/success") == 1 for line in steps):
        advice = "the tasks are solved already: use harder ones"
    elif same and min(same) > ALIKE:
        advice = "its replies do not differ: raise train.temperature, or begin with a model that is less certain"
    text = f"0 of {total:.0f} groups had different returns so far, so nothing is learned"
    return [Concern("no_signal", "", text, advice)]


def _dominant(role: str, steps: Sequence[Line], others: Sequence[str]) -> list[Concern]:
    """Warns of a dominant role. others: the roles that are not dead; where there are none, it says nothing new."""
    for what in ("gradient", "advantage"):
        shares = [line[f"role/{role}/{what}_share"] for line in steps if f"role/{role}/{what}_share" in line]
        if others and len(shares) == len(steps) and min(shares) > DOMINANT:
            return [
                Concern(
                    "dominant", role, f"role '{role}' is dominant: {fmean(shares):.0%} of the {what} is its own",
                    "give the roles policies of their own, or rewards of like size",
                )
            ]  # fmt: skip
    return []


def _captured(role: str, steps: Sequence[Line], others: Sequence[str]) -> list[Concern]:
    """Warns of a role that has nearly all the gradient of a policy that several roles share."""
    shares = [line[f"role/{role}/policy_share"] for line in steps if f"role/{role}/policy_share" in line]
    if not others or len(shares) < len(steps) or min(shares) <= DOMINANT:
        return []
    return [
        Concern(
            "captured", role,
            f"role '{role}' has captured the policy it shares: {fmean(shares):.0%} of the policy's gradient is its own",
            "the other roles drift with what it learns: give the roles policies of their own ([team], "
            "[policies.NAME]), or rewards of like size",
        )
    ]  # fmt: skip


def _silent_play(steps: Sequence[Line], *, solved: bool) -> Iterator[Concern]:
    """Warns of an environment that gives nothing to learn from, from the first step on. solved: validation ever was."""
    if not steps:
        return
    if steps[-1].get("budget/sampled_tokens") == 0:
        yield Concern(
            "unasked", "", "no role was asked anything so far",
            "nothing can be learned: have play await scene.ask, or an agent call the base URLs that it is given",
        )  # fmt: skip
    if steps[-1].get("rollout/no_reward", 0) == 1:
        yield Concern(
            "no_reward", "", "play gave no reward in any episode",
            "nothing can be learned: call scene.reward(role, value) or scene.team_reward(value) in play",
        )  # fmt: skip
    said = [line["rollout/no_outcome"] for line in steps if "rollout/no_outcome" in line]
    if not solved and said and min(said) == 1:
        yield Concern(
            "no_outcome", "", "play said no outcome in any episode, so every one counts as not solved",
            "success stays 0 and no checkpoint is better than another: end play with scene.succeed() or "
            "scene.fail(reason); where it calls succeed alone, nobody has solved a task yet",
        )  # fmt: skip


def _asked(lines: Sequence[Line]) -> set[str]:
    return {key.split("/")[1] for line in lines for key in line if key.startswith("role/")}


def _named(lines: Sequence[Line]) -> set[str]:
    return {key.split("/")[1] for line in lines for key in line if key.startswith("policy/")}


def _policies(steps: Sequence[Line], names: Iterable[str], at_ceiling: bool) -> Iterator[Concern]:
    """Warns of policies that fall apart."""
    for name in sorted(names):
        yield from _entropy(name, steps, at_ceiling)
        yield from _gradient(name, steps)
        recent = _series(steps[-SOON:], f"policy/{name}/mismatch")
        if recent and (apart := median(recent)) > MISMATCH:  # in bfloat16 a single step may be above it
            yield Concern(
                "mismatch", name,
                f"policy '{name}' is trained on other probabilities than it sampled: they differ by {apart:.2f} nats",
                "look at train.dtype, the chat template and optimizer.updates_per_step; lower optimizer.lr if it grew; "
                "rollouts that run ahead are of other weights too: see runtime.max_staleness",
            )  # fmt: skip
        cut = steps[-1].get(f"policy/{name}/correction_cut", 0.0)
        if cut > CORRECTED:
            yield Concern(
                "corrected", name,
                f"loss.correction cuts {cut:.0%} of the tokens that policy '{name}' is trained on",
                "the engine samples from another distribution than the learner's: see policy/P/mismatch; where samples "
                "are of older weights, lower optimizer.lr",
            )  # fmt: skip


def _series(steps: Sequence[Line], key: str) -> list[float]:
    return [line[key] for line in steps if key in line]


def _entropy(name: str, steps: Sequence[Line], at_ceiling: bool) -> Iterator[Concern]:
    entropies = _series(steps, f"policy/{name}/entropy")
    recent, start = entropies[-SOON:], fmean(entropies[:SOON] or [0.0])
    if len(recent) < SOON:
        return
    if recent[-1] < COLLAPSED and not at_ceiling:
        yield Concern(
            "collapsed", name, f"policy '{name}' has collapsed: entropy {recent[-1]:.3f}, it says always the same",
            "replies that do not differ teach nothing: go back to an earlier checkpoint with a lower optimizer.lr, or "
            "add loss.kl",
        )  # fmt: skip
    if min(recent) > max(EXPLODED, MANIFOLD * entropies[0]):
        yield Concern(
            "exploded", name,
            f"policy '{name}' has exploded: entropy {recent[-1]:.2f}, from {start:.2f} at the start: it says anything",
            "its weights are spoilt: start again with a tenth of optimizer.lr",
        )  # fmt: skip


def _gradient(name: str, steps: Sequence[Line]) -> Iterator[Concern]:
    norms = _series(steps[-LOOK_BACK + 1 :], f"policy/{name}/grad_norm")
    learning = all(line["groups/live"] for line in steps[-SOON:])  # a KL term alone begins at zero
    if len(norms) >= SOON and not any(norms[-SOON:]) and learning:
        yield Concern(
            "stuck", name, f"policy '{name}' has a gradient of exactly zero though its groups are live",
            "its outputs are saturated, which an optimizer.lr far too high does: start again with a lower one",
        )  # fmt: skip
    before = median(norms[:-1]) if len(norms) > BEFORE else 0.0
    if before and norms[-1] > SPIKE * before:
        yield Concern(
            "spike", name, f"the gradient of policy '{name}' is {norms[-1] / before:.0f} times its median",
            "it is clipped, but look at the step (coterie play RUN --step STEP --tree), and lower optimizer.lr if it "
            "comes back",
        )  # fmt: skip


def _validation(lines: Sequence[Line]) -> Iterator[Concern]:
    """Warns of a validation curve that does not rise, or falls."""
    validated = [line for line in lines if "validation/success_low" in line]
    if not validated:
        return
    start, last = validated[0], validated[-1]
    best = max(reversed(validated), key=lambda line: line["validation/success"])
    after = validated[1:][-DIVERGED:]
    if len(after) == DIVERGED and all(line["validation/success"] < start["validation/success_low"] for line in after):
        yield Concern(
            "diverged", "",
            f"validation has diverged: {last['validation/success']:.3f}, from {start['validation/success']:.3f} at "
            f"step {start['step']:.0f}, and it stays below",
            "the learning rate is the first suspect: start again with a third of optimizer.lr; then look at whether "
            "the reward pays for what is solved",
        )  # fmt: skip
    if last["validation/success_high"] < best["validation/success_low"]:
        yield Concern(
            "fallen", "",
            f"validation has fallen from {best['validation/success']:.3f} at step {best['step']:.0f} to "
            f"{last['validation/success']:.3f}",
            "the best checkpoint is kept, and is what coterie eval plays: stop, or go on with a lower optimizer.lr",
        )  # fmt: skip
        return
    recent = validated[-FLAT - 1 :]
    first = recent[0]
    if len(recent) > FLAT and last["validation/success"] < CEILING and all(
        first["validation/success_low"] <= line["validation/success"] <= first["validation/success_high"]
        for line in recent
    ):  # fmt: skip
        yield Concern(
            "flat", "",
            f"validation is flat: {last['validation/success']:.3f}, and {first['validation/success']:.3f} at step "
            f"{first['step']:.0f}, {FLAT} validations ago",
            "read what the team does (coterie play RUN), then stop, raise optimizer.lr, draw more replies, or use "
            "tasks that it solves sometimes",
        )  # fmt: skip


def _often(shares: Sequence[float], often: float, at_once: float) -> bool:
    """Returns True if the shares of the latest steps are all high, or of fewer than SOON steps all very high."""
    return bool(shares) and min(shares) > (often if len(shares) >= SOON else at_once)


def _cut(role: str, steps: Sequence[Line]) -> list[Concern]:
    shares, lengths = (_series(steps, f"role/{role}/{name}") for name in ("truncated_share", "cut_tokens"))
    if not _often(shares, CUT, CUT_AT_ONCE) or (lengths and lengths[-1] <= 1):  # one token is a choice, and has no end
        return []
    limit = f" of up to {lengths[-1]:.0f} tokens" if lengths else ""
    return [
        Concern(
            "cut", role,
            f"role '{role}' does not end its replies{limit}: {fmean(shares):.0%} are cut at the token limit",
            "raise the limit (environment.max_tokens, engine.max_tokens, or max_tokens of scene.ask), ask for shorter "
            "replies, or reward those that end; if entropy rose with it, lower optimizer.lr",
        )
    ]  # fmt: skip


def _alike(role: str, steps: Sequence[Line]) -> list[Concern]:
    shares = _series(steps, f"role/{role}/same_share")
    if not _often(shares, ALIKE, ALIKE_AT_ONCE):
        return []
    return [
        Concern(
            "alike", role,
            f"role '{role}' says always the same: in {fmean(shares):.0%} of its groups all replies are equal",
            "replies that do not differ teach nothing: raise train.temperature, or begin with a model that is less "
            "certain",
        )
    ]  # fmt: skip


def _overlong(role: str, steps: Sequence[Line]) -> list[Concern]:
    if sum(f"rollout/overlong/{role}" in line for line in steps) < OVERLONG:
        return []
    return [
        Concern(
            "overlong", role, f"prompts of role '{role}' outgrow the context: it is not asked, and the episode fails",
            "repeat less of the episode in its prompts, ask for shorter replies (environment.max_tokens or "
            "engine.max_tokens), or use a model with a longer context (policies.NAME.model)",
        )
    ]  # fmt: skip


def _mostly_dead(steps: Sequence[Line]) -> list[Concern]:
    live = sum(line["groups/live"] for line in steps) / max(1, sum(line["groups/total"] for line in steps))
    if live >= FEW_LIVE:
        return []
    return [
        Concern(
            "mostly_dead", "", f"{1 - live:.0%} of groups had equal returns over {len(steps)} steps",
            "most of the rollout teaches nothing: stop if success is near its ceiling (train.stop_when_solved, "
            "train.stop_dead_steps), else use tasks the team solves "
            "sometimes, more replies a group, or a higher temperature",
        )
    ]  # fmt: skip


def _no_memory(steps: Sequence[Line]) -> list[Concern]:
    if not all(line.get("memory/skipped") for line in steps):
        return []
    return [
        Concern(
            "no_memory", "", f"memory learned nothing in {len(steps)} steps",
            "a step of fewer than 16 episodes, or of episodes that all end alike, tells nothing of notes: raise "
            "train.tasks_per_step, or use tasks the team solves sometimes",
        )
    ]  # fmt: skip


def _lazy(role: str, lines: Sequence[Line]) -> list[Concern]:
    key = f"mute/{role}/change"
    probe = max((line for line in lines if key in line), key=lambda line: line["step"], default=None)
    if probe is None or -probe[f"{key}_low"] >= LAZY_POINTS:
        return []
    return [
        Concern(
            "lazy", role,
            f"role '{role}' is lazy: muting it at step {int(probe['step'])} changed success by "
            f"{100 * probe[key]:+.1f} points; by the 95 % interval it costs less than {100 * LAZY_POINTS:.0f} points",
            "leave the role out, or give it something that the others cannot see or do",
        )
    ]  # fmt: skip
