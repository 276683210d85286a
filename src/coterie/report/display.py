"""The display of a long job: a live table on a terminal, plain lines elsewhere.

It shows first how the team performs by itself: its validation success over time. The success of rollouts with a tree,
which continues with the best of several replies, is only in metrics.jsonl.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress, TextColumn
from rich.table import Table

from coterie.kernel.environment import Settings
from coterie.kernel.safe import plain
from coterie.kernel.tracker import Line, Tracker
from coterie.report.diagnose import WarningWatch
from coterie.report.pace import steps_of, time_left
from coterie.report.story import glance, sparkline
from coterie.report.terminal import SafeConsole
from coterie.run.trackers import in_notebook

BAR = 24
"""Number of characters of the progress bar."""
EVERY_S = 30.0
"""Seconds between two lines where there is no terminal; validations, warnings, the first step and the last come too."""


class Display(Tracker):
    """A display of a training run while it goes on: on a terminal, in a notebook's cell, or line by line."""

    local = True

    def __init__(self, config: Settings | None = None, *, console: Console | None = None) -> None:
        """Shows the run on a console; without one, on standard output or in a notebook's cell."""
        super().__init__(config)
        self._console = console or SafeConsole(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._cell = NotebookCell() if console is None and in_notebook() else None
        self._began = time.monotonic()
        self._printed = -math.inf
        self._lines: list[Line] = []
        self._roles: Mapping[str, str] = {}
        self._train: Mapping[str, Any] = {}
        self._folder = ""
        self._watch = WarningWatch(())
        self._told = False

    def begin(self, folder: Path, tables: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Notes where the run is; what was logged before is not shown again."""
        self._roles, self._train, self._folder = tables["team"], tables["train"], str(folder)
        self._watch = WarningWatch(tuple(self._roles))
        for earlier in lines:
            self._watch.see(earlier)
            self._lines.append(earlier)
        if self._live:
            self._live.start()

    def end(self) -> None:
        """Leaves the last line where it is, and tells the run's story below it."""
        if self._live:
            self._live.stop()
        for text in glance(self._lines, tuple(self._roles), self._steps()) if self._told else ():
            self._say(text)
        if self._cell:
            self._cell.show(self._table(self._lines[-1]))

    def log(self, line: Line) -> None:
        """Shows one line of metrics."""
        if not self._told:
            self._told = True
            self._say(f"writing to {self._folder}")
        self._lines.append(line)
        new = self._watch.see(line)
        for concern in new:
            self._say(f"warning at step {int(line['step'])}: {concern}", mark="warning")
        if self._cell:
            self._cell.show(self._table(line))
        elif self._live:
            self._live.update(self._table(line), refresh=True)
        elif new or self._telling(line) or time.monotonic() - self._printed >= EVERY_S:
            self._printed = time.monotonic()
            self._console.print(self._plain(line), soft_wrap=True)

    def _telling(self, line: Line) -> bool:
        """Returns True for the first step, the last, and one that was validated."""
        return line["step"] in (1, self._steps()) or "validation/success" in line

    def _say(self, text: str, mark: str = "") -> None:
        if self._cell:
            self._cell.say(text)
            return
        marked = escape(text)
        if mark and marked.startswith(mark):
            marked = f"[yellow]{mark}[/]{marked.removeprefix(mark)}"
        self._console.print(marked, soft_wrap=True)

    def _plain(self, line: Line) -> str:
        parts = [f"step {int(line['step'])}/{self._steps()}", f"validation {self._validation()}"]
        paid = (name for name in ("team", *self._roles) if f"reward/{name}" in line)
        rewards = [f"{name} {line[f'reward/{name}']:+.2f}" for name in paid]
        parts += [f"reward {', '.join(rewards)}"] if rewards else []
        if "groups/total" in line:
            parts.append(f"{int(line['groups/live'])} of {int(line['groups/total'])} groups live")
        if "time/tokens_per_s" in line:
            parts += [f"{line['time/tokens_per_s']:.0f} tokens/s", f"{self._left()} left"]
        return "  ".join(parts)

    def _left(self) -> str:
        """Returns the time left, as minutes and seconds."""
        return clock(time_left(self._lines, self._steps(), self._train["eval_every"]))

    def _steps(self) -> int:
        """Returns the steps that the run will have made."""
        return steps_of(self._lines, self._train)

    def _validation(self) -> str:
        """Returns the latest validation, its interval, the curve that led there, and the best where that is another."""
        validated = [line for line in self._lines if "validation/success" in line]
        if not validated:
            return "not yet"
        last, best = validated[-1], max(reversed(validated), key=lambda line: line["validation/success"])
        low, high = last["validation/success_low"], last["validation/success_high"]
        text = f"{last['validation/success']:.3f} \\[{low:.3f}, {high:.3f}]"
        if last["step"] < self._lines[-1]["step"]:
            text += f" at {int(last['step'])}"
        if best["validation/success"] > last["validation/success"]:
            text += f", best {best['validation/success']:.3f} at {int(best['step'])}"
        if self._console.encoding == "utf-8":
            text += f"  {sparkline([line['validation/success'] for line in validated])}"
        return text

    def _table(self, line: Line) -> Table:
        table = Table.grid(padding=(0, 2))
        filled = round(BAR * line["step"] / max(1, self._steps()))
        bar = f"[green]{'█' * filled}[/][dim]{'░' * (BAR - filled)}[/]" if self._console.encoding == "utf-8" else ""
        table.add_row("validation", f"[bold]{self._validation()}[/]")
        table.add_row("step", f"{int(line['step'])}/{self._steps()} {bar}")
        if "groups/total" in line:
            table.add_row("groups", f"{int(line['groups/live'])} live of {int(line['groups/total'])}")
        for role, policy in self._roles.items():
            if f"reward/{role}" in line:
                entropy = line.get(f"policy/{policy}/entropy")
                more = "" if entropy is None else f", entropy {entropy:.2f}"
                table.add_row(escape(role), f"reward {line[f'reward/{role}']:+.3f}{more} [dim]({escape(policy)})[/]")
        if "time/tokens_per_s" in line:
            table.add_row("speed", f"{line['time/tokens_per_s']:.0f} tokens/s, {line['time/step']:.1f} s a step")
        table.add_row("time", f"{clock(time.monotonic() - self._began)}, {self._left()} left")
        return table


class NotebookCell:
    """The output of a notebook's cell, which is written anew with every step."""

    def __init__(self) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports]  (a notebook's own)

        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
        self._said: list[str] = []

    def say(self, text: str) -> None:
        """Adds a line above the table that is shown."""
        self._said.append(plain(text))

    def show(self, table: Table) -> None:
        """Shows a table in place of the one before."""
        page = SafeConsole(file=io.StringIO(), width=100, force_jupyter=False, highlight=False)
        with page.capture() as drawn:
            page.print(table)
        self._handle.update({"text/plain": "\n".join([*self._said, drawn.get()])}, raw=True)


@contextmanager
def step_progress(
    console: Console, steps: int
) -> Iterator[tuple[Callable[[int, int], None], Callable[[int, float], None]]]:
    """Shows the progress of a starter's making: a bar on a terminal, a line every tenth off it.

    Yields:
        what is called with (tasks looked at, of how many), and then with (step, loss) after each step.
    """
    look = "looking at what is demonstrated"
    if console.is_terminal:
        with Progress(*Progress.get_default_columns(), TextColumn("{task.fields[loss]}"), console=console) as bar:
            task = bar.add_task(look, loss="")
            yield (
                lambda done, tasks: bar.update(task, completed=done, total=tasks),
                lambda step, loss: bar.update(
                    task, description="training", completed=step + 1, total=steps, loss=f"loss {loss:.3f}"
                ),
            )
        return
    began = time.monotonic()

    def shown(done: int, tasks: int) -> None:
        if done % max(1, tasks // 10) == 0:
            left = (time.monotonic() - began) / done * (tasks - done)
            console.print(f"{look}: {done} of {tasks} tasks  {clock(left)} left")

    def show(step: int, loss: float) -> None:
        nonlocal began
        done = step + 1
        began = began if step else time.monotonic()
        if done % max(1, steps // 10) == 0 or done == steps:
            left = (time.monotonic() - began) / step * (steps - done) if step else math.nan
            console.print(f"step {done}/{steps}  loss {loss:.3f}  {clock(left)} left")

    yield shown, show


def clock(seconds: float) -> str:
    """Returns seconds as minutes and seconds; ? if they are not known."""
    if math.isnan(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
