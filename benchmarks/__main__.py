"""The command `python -m benchmarks [NAME [ROW...]]`, in a checkout."""

from typing import Annotated

import typer

from benchmarks import BENCHES, run_bench
from coterie.report.output import say, serve
from coterie.report.terminal import let_output_break

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="Which one. Default: list all, with what they measure.")] = None,
    rows: Annotated[list[str] | None, typer.Argument(help="Rows of a table of trainings. Default: all.")] = None,
) -> None:
    """Run a benchmark; each reproduces figures of the docs."""
    if name is None:
        say("\n".join(f"{each:12} {text}" for each, text in BENCHES.items()))
        return
    let_output_break()
    figures = run_bench(name, lambda line: say(line, err=True), rows or ())
    say("\n".join(f"{key}: {value}" for key, value in figures.items()))


if __name__ == "__main__":
    serve(app)
