"""What a person sees while a long job runs: a live table on a terminal, plain lines off it.

What the team does by itself comes first: its validation, and how that has gone. What a rollout reaches with the help
of a tree, which goes on with the best of several replies, stands in metrics.jsonl alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean, median
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress, TextColumn
from rich.table import Table

from coterie.config.settings import Config
from coterie.report.diagnose import Watch
from coterie.run.folder import Run

BAR = 24
"""Characters of the progress bar, and of the curve at most."""
BLOCKS = "▁▂▃▄▅▆▇█"
"""Eighths of the way to 1."""
RECENT = 20
"""Steps whose time says what is left."""


class TrainingDisplay:
    """Watches a training run. Use as a context manager, and as its `watch`."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._began = time.monotonic()
        self._lines: list[Mapping[str, float]] = []
        self._watch = Watch(())

    def __enter__(self) -> TrainingDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, run: Run, config: Config, line: Mapping[str, float]) -> None:
        """Shows one line of metrics."""
        if not self._lines:
            self.console.print(f"writing to {run.folder}", soft_wrap=True, markup=False)
            self._watch = Watch(tuple(config.team.roles))
            for earlier in run.metrics()[:-1]:
                self._watch.see(earlier)
                self._lines.append(earlier)
        self._lines.append(line)
        for concern in self._watch.see(line):
            self.console.print(
                f"[yellow]warning[/] at step {int(line['step'])}: {escape(str(concern))}", soft_wrap=True
            )
        if self._live:
            self._live.update(self._table(config, line), refresh=True)
        else:
            self.console.print(self._plain(config, line), soft_wrap=True)

    def _plain(self, config: Config, line: Mapping[str, float]) -> str:
        parts = [f"step {int(line['step'])}/{config.train.steps}", f"validation {self._validation()}"]
        parts += [f"{role} {line[f'reward/{role}']:+.2f}" for role in config.team.roles if f"reward/{role}" in line]
        if "time/tokens_per_s" in line:
            parts += [f"{line['time/tokens_per_s']:.0f} tokens/s", f"{clock(time_left(self._lines, config))} left"]
        return "  ".join(parts)

    def _validation(self) -> str:
        """The latest, with its interval, the curve that led there, and the best where that is another."""
        validated = [line for line in self._lines if "validation/success" in line]
        if not validated:
            return "not yet"
        last, best = validated[-1], max(validated, key=lambda line: line["validation/success"])
        low, high = last["validation/success_low"], last["validation/success_high"]
        text = f"{last['validation/success']:.3f} \\[{low:.3f}, {high:.3f}]"
        if last["step"] < self._lines[-1]["step"]:
            text += f" at {int(last['step'])}"
        if best["validation/success"] > last["validation/success"]:
            text += f", best {best['validation/success']:.3f} at {int(best['step'])}"
        if self.console.encoding == "utf-8":
            text += f"  {sparkline([line['validation/success'] for line in validated])}"
        return text

    def _table(self, config: Config, line: Mapping[str, float]) -> Table:
        table = Table.grid(padding=(0, 2))
        filled = round(BAR * line["step"] / config.train.steps)
        bar = f"[green]{'█' * filled}[/][dim]{'░' * (BAR - filled)}[/]" if self.console.encoding == "utf-8" else ""
        table.add_row("validation", f"[bold]{self._validation()}[/]")
        table.add_row("step", f"{int(line['step'])}/{config.train.steps} {bar}")
        if "groups/total" in line:
            table.add_row("groups", f"{int(line['groups/live'])} live of {int(line['groups/total'])}")
        for role, policy in config.team.roles.items():
            if f"reward/{role}" in line:
                entropy = line.get(f"policy/{policy}/entropy")
                more = "" if entropy is None else f", entropy {entropy:.2f}"
                table.add_row(escape(role), f"reward {line[f'reward/{role}']:+.3f}{more} [dim]({escape(policy)})[/]")
        if "time/tokens_per_s" in line:
            table.add_row("speed", f"{line['time/tokens_per_s']:.0f} tokens/s, {line['time/step']:.1f} s a step")
        table.add_row("time", f"{clock(time.monotonic() - self._began)}, {clock(time_left(self._lines, config))} left")
        return table


def sparkline(values: Sequence[float]) -> str:
    """Shares as a curve of blocks from 0 to 1, the latest `BAR` of them."""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[min(top, max(0, int(value * len(BLOCKS))))] for value in values[-BAR:])


def time_left(lines: Sequence[Mapping[str, float]], config: Config) -> float:
    """Seconds that a run still takes: steps at the median pace of the latest, and the validations that are due.

    Args: lines: of metrics.jsonl so far. Returns: not a number before the first step.
    """
    paces = [line["time/step"] - line.get("time/eval", 0.0) for line in lines if "time/step" in line]
    if not paces:
        return math.nan
    step, steps, every = int(lines[-1]["step"]), config.train.steps, config.train.eval_every
    validations = len({*range((step // every + 1) * every, steps + 1, every), steps} - {step})
    each = fmean([line["time/eval"] for line in lines if "time/eval" in line] or [0.0])
    return median(paces[-RECENT:]) * (steps - step) + each * validations * (step < steps)


@contextmanager
def step_progress(console: Console, steps: int) -> Iterator[Callable[[int, float], None]]:
    """Progress of a job of known length: a bar on a terminal, a line every tenth off it."""
    if console.is_terminal:
        with Progress(
            *Progress.get_default_columns(), TextColumn("loss {task.fields[loss]:.3f}"), console=console
        ) as bar:
            task = bar.add_task("training", total=steps, loss=float("nan"))
            yield lambda step, loss: bar.update(task, completed=step + 1, loss=loss)
        return
    began = time.monotonic()

    def show(step: int, loss: float) -> None:
        done = step + 1
        if done % max(1, steps // 10) == 0 or done == steps:
            left = (time.monotonic() - began) / done * (steps - done)
            console.print(f"step {done}/{steps}  loss {loss:.3f}  {clock(left)} left")

    yield show


def clock(seconds: float) -> str:
    """Minutes and seconds; ? for what is not known."""
    if math.isnan(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
