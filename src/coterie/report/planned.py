"""The plan of a run as text: predicted memory and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from coterie.config.settings import Config
from coterie.models.memory import GIB
from coterie.report.story import duration
from coterie.run.dry import DryRun, dry_run, resolved
from coterie.run.folder import Run
from coterie.run.measured import KINDS, Share
from coterie.run.plan import Plan, check_planned, plan
from coterie.run.room import Room


def try_out(config: Config, old: Run | None = None, progress: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Yields the config as the run would save it, as TOML. As comments follow its memory, time, and one tiny step.

    Args:
        old: the run that would go on.
        progress: called with what is done next, before it is done.

    Raises:
        CoterieError: what would stop the run at its beginning.
    """
    config = resolved(config, old)
    yield _comment("\n".join(config.remarks)) + config.explained()
    progress("predicting memory and time")
    plans = plan(config)
    yield _comment("\n\n".join([*map(planned_text, plans), total_text(plans, config)]))
    check_planned(config, plans)
    if any(policy.kind == "remote" for policy in config.policies.values()):
        yield _comment("no step was tried: a server plays a policy, and it may charge for requests")
    else:
        yield _comment(dry_text(dry_run(config, progress=progress), config))


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def planned_text(plan: Plan) -> str:
    """Returns a device's plan as text: whether it fits, and each policy's part."""
    when = "while policies learn" if plan.learning > plan.sampling else "while policies are sampled from"
    lines = [
        f"{_title(plan)}: {plan.peak / GIB:.2f} of {plan.machine.memory / GIB:.1f} GiB at the peak, {when}; "
        + ("it fits" if plan.fits else "it does not fit"),
        "",
        _row("", [share.policy for share in plan.shares]),
        _row("kind", [share.kind for share in plan.shares]),
        _row("model", [share.model.rpartition("/")[2] for share in plan.shares]),
        _row("million parameters", [f"{share.parameters / 1e6:,.2f}" for share in plan.shares]),
        _row("of these trained", [f"{share.trained / 1e6:,.2f}" for share in plan.shares]),
        *(
            _row(f"GiB {label}", [f"{share.memory.get(kind, 0) / GIB:.3g}" for share in plan.shares])
            for kind, label in KINDS.items()
        ),
        _row("s sampling", [_seconds(share.rollout_s) for share in plan.shares]),
        _row("s learning", [_seconds(share.update_s) for share in plan.shares]),
        _row("s validation", [_seconds(share.validation_s) for share in plan.shares]),
        _row("s test", [_seconds(share.test_s) for share in plan.shares]),
        "",
        f"GiB while policies are sampled from: {plan.sampling / GIB:.2f}: {_sum(plan, 'the largest caches')}.",
        f"GiB while policies learn: {plan.learning / GIB:.2f}: "
        f"{_sum(plan, 'all gradients, the largest activations and logits')}.",
        "Seconds are for one step, one validation and one test in which every reply has its maximum length, at the "
        "present speed of the device.",
    ]
    return "\n".join([*lines, *(f"{remark}." for remark in plan.remarks)])


def total_text(plans: Sequence[Plan], config: Config) -> str:
    """Returns in words how long a whole run takes at most, policies one after another, and its room on a disk."""
    train = config.train
    shares = [share for plan in plans for share in plan.shares]
    validations = train.steps // train.eval_every + 1
    seconds = sum(
        train.steps * (share.rollout_s + share.update_s) + validations * share.validation_s + 2 * share.test_s
        for share in shares
    )
    return (
        f"About {duration(seconds)} for {train.steps} steps, {validations} validations and the test of the first and "
        "the best checkpoint if every reply has its maximum length, and usually less.\n"
        f"On the disk {Room.of([share.trained for share in shares], train.keep_checkpoints).text}."
    )


def _sum(plan: Plan, passing: str) -> str:
    """Returns in words the parts that make up a peak."""
    process = f"{plan.process / GIB:.2f} of the process"
    return f"{process}, weights, copies, references and averages of all, {passing}, and what an allocator cannot reuse"


def dry_text(done: DryRun, config: Config) -> str:
    """Returns in words the time and memory of a tiny step, beside the planned memory, and the time of all steps."""
    train = config.train
    whole = (done.rollout_s + done.update_s) / done.tasks * train.tasks_per_step * train.steps
    lines = [
        f"a tiny step, {done.tasks} tasks with replies as they came: {done.rollout_s:.1f} s sampling, "
        f"{done.update_s:.1f} s learning; at the pace of so small a step {duration(whole)} for {train.steps} steps of "
        f"{train.tasks_per_step} tasks, besides validations"
    ]
    lines += [
        f"{_title(plan)}: {measured / GIB:.2f} GiB at the peak, {plan.peak / GIB:.2f} predicted"
        for plan, measured in zip(done.plans, done.measured, strict=True)
    ]
    return "\n".join(lines)


def as_data(plans: Sequence[Plan]) -> list[dict[str, object]]:
    """Returns plans as plain data, in bytes and seconds."""
    return [
        {
            "machine": plan.machine.name, "device": plan.device, "memory": plan.machine.memory, "fits": plan.fits,
            "sampling": plan.sampling,
            "learning": plan.learning, "process": plan.process, "remarks": list(plan.remarks),
            "policies": {share.policy: _share(share) for share in plan.shares},
        }
        for plan in plans
    ]  # fmt: skip


def _title(plan: Plan) -> str:
    return plan.machine.name if plan.device == "cpu" else f"{plan.machine.name} ({plan.device})"


def _share(share: Share) -> dict[str, object]:
    return {
        "kind": share.kind, "model": share.model, "parameters": share.parameters, "trained": share.trained,
        "memory": dict(share.memory), "rollout_s": share.rollout_s, "update_s": share.update_s,
        "validation_s": share.validation_s, "test_s": share.test_s,
    }  # fmt: skip


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}"


def _row(title: str, cells: Sequence[str]) -> str:
    return f"{title:22}" + "".join(f"{cell[-15:]:>16}" for cell in cells)
