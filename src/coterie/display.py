"""What a person sees while a long job runs: a live table on a terminal, plain lines off it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress, TextColumn
from rich.table import Table

from coterie.config import Config
from coterie.diagnose import Watch
from coterie.runs import Run

BAR = 24
"""Characters of the progress bar."""


class TrainingDisplay:
    """Watches a training run. Use as a context manager, and as its `watch`."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._began = time.monotonic()
        self._first_step: int | None = None
        self._validation: Mapping[str, float] = {}
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
        if self._first_step is None:
            self._first_step = int(line["step"])
            self.console.print(f"writing to {run.folder}", soft_wrap=True, markup=False)
            self._watch = Watch(tuple(config.team.roles))
            for earlier in run.metrics()[:-1]:
                self._watch.see(earlier)
        if "validation/success" in line:
            self._validation = line
        for concern in self._watch.see(line):
            self.console.print(
                f"[yellow]warning[/] at step {int(line['step'])}: {escape(str(concern))}", soft_wrap=True
            )
        if self._live:
            self._live.update(self._table(config, line), refresh=True)
        else:
            self.console.print(self._plain(config, line), soft_wrap=True)

    def _left(self, config: Config, line: Mapping[str, float]) -> str:
        done = int(line["step"]) - (self._first_step or 0)
        if done <= 0:
            return "?"
        return _clock((time.monotonic() - self._began) / done * (config.train.steps - line["step"]))

    def _plain(self, config: Config, line: Mapping[str, float]) -> str:
        parts = [f"step {int(line['step'])}/{config.train.steps}"]
        if "rollout/success" in line:
            parts.append(f"rollout {line['rollout/success']:.2f}")
        if "validation/success" in line:
            parts.append(f"validation {_interval(line)}")
        parts += [f"{role} {line[f'reward/{role}']:+.2f}" for role in config.team.roles if f"reward/{role}" in line]
        if "time/tokens_per_s" in line:
            parts += [f"{line['time/tokens_per_s']:.0f} tokens/s", f"{self._left(config, line)} left"]
        return "  ".join(parts)

    def _table(self, config: Config, line: Mapping[str, float]) -> Table:
        table = Table.grid(padding=(0, 2))
        filled = round(BAR * line["step"] / config.train.steps)
        bar = f"[green]{'█' * filled}[/][dim]{'░' * (BAR - filled)}[/]" if self.console.encoding == "utf-8" else ""
        table.add_row("step", f"{int(line['step'])}/{config.train.steps} {bar}")
        if self._validation:
            table.add_row(
                "validation", f"[bold]{_interval(self._validation)}[/] at step {int(self._validation['step'])}"
            )
        if "rollout/success" in line:
            table.add_row("rollout", f"{line['rollout/success']:.2f} solved, {line['rollout/turns']:.2f} turns")
            table.add_row("groups", f"{int(line['groups/live'])} live of {int(line['groups/total'])}")
        for role, policy in config.team.roles.items():
            if f"reward/{role}" in line:
                entropy = line.get(f"policy/{policy}/entropy")
                more = "" if entropy is None else f", entropy {entropy:.2f}"
                table.add_row(role, f"reward {line[f'reward/{role}']:+.3f}{more} [dim]({policy})[/]")
        if "time/tokens_per_s" in line:
            table.add_row("speed", f"{line['time/tokens_per_s']:.0f} tokens/s, {line['time/step']:.1f} s a step")
        table.add_row("time", f"{_clock(time.monotonic() - self._began)}, {self._left(config, line)} left")
        return table


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
            console.print(f"step {done}/{steps}  loss {loss:.3f}  {_clock(left)} left")

    yield show


def _interval(line: Mapping[str, float]) -> str:
    low, high = line["validation/success_low"], line["validation/success_high"]
    return f"{line['validation/success']:.3f} [{low:.3f}, {high:.3f}]".replace("[", "\\[")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
