"""Output of the command line: one print function for people and machines, and the messages at the end of a command."""

from __future__ import annotations

import errno
import faulthandler
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn

import typer

from coterie import errors
from coterie.errors import ConfigError, CoterieError, first_line
from coterie.kernel.safe import one_line, plain

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
BROKEN_PIPE = 141
"""The exit code of a command that nobody listens to any more, as of one that SIGPIPE ended."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that end a command: Ctrl-C, a scheduler, a closed terminal, a scheduler that will end it soon."""
ENDED_BY: list[int] = []
"""Signals that have ended this command."""
LESS = (
    "take less: a lower optimizer.tokens_per_microbatch or engine.memory_gib, a smaller model; coterie plan CONFIG "
    "says what a run takes"
)
OURS = Path(errors.__file__).parent
"""Folder of this package."""


USAGE_ERRORS = typer.BadParameter.__bases__
"""Errors that typer raises for a word it does not understand; it keeps the class to itself."""


class Unheard(Exception):
    """Raised when whoever read the output has gone."""


def say(text: str, err: bool = False) -> None:
    """Prints for people and machines alike: the one way out of a command, and it is safe."""
    try:
        typer.echo(plain(text), err=err)
    except BrokenPipeError as error:  # typer would report a broken pipe as a failure
        raise Unheard from error
    except OSError as error:
        told = f"the output could not be written: {error.strerror}; make room, or send it elsewhere"
        raise CoterieError(told) from error


def kept_for_json(as_json: bool) -> AbstractContextManager[object]:
    """Keeps standard output for one JSON object: what an environment prints goes to standard error."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def interrupted(message: str = "", code: int = 0) -> NoReturn:
    """Says that the command was interrupted, and leaves.

    Args:
        message: instead of "interrupted", or "stopped by SIGTERM".
        code: instead of 128 and the signal's number.
    """
    number = ENDED_BY[-1] if ENDED_BY else signal.SIGINT
    told = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    say(f"\ncoterie: {one_line(message) or told}", err=True)
    sys.exit(code or 128 + number)


def show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints a bug's traceback, one of `play` from `play` on; what it quotes of tasks and replies is made safe."""
    from coterie.kernel.cursor import PlayBug

    if not isinstance(error, PlayBug) or (cause := error.__cause__) is None:
        sys.stderr.write(plain("".join(traceback.format_exception(kind, error, trace))))
        return
    trace = cause.__traceback__
    while trace and trace.tb_next and OURS in Path(trace.tb_frame.f_code.co_filename).parents:
        trace = trace.tb_next
    sys.stderr.write(plain("".join(traceback.format_exception(type(cause), cause, trace))))
    said = [f"coterie: {error}", *getattr(error, "__notes__", ())]
    sys.stderr.write("\n" + "".join(f"{one_line(line)}\n" for line in said))


def _verb(error: BaseException) -> str:
    """Returns the command that a person wrote wrongly, as far as it was understood."""
    context = getattr(error, "ctx", None)
    return f"coterie {context.info_name}" if context is not None and context.parent is not None else "coterie"


def prepare_streams() -> None:
    """Makes both streams write the code of a character that a terminal lacks: no text can stop a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _unheard(_: object) -> None:
    """Says nothing of what an object raises at its end."""


@contextmanager
def ended_by(numbers: Iterable[int]) -> Iterator[None]:
    """Has signals raise KeyboardInterrupt at once, where nobody set them otherwise, as a shell may.

    asyncio's own handler only cancels a task, which may hide it by failing. A process that is forked from this one dies
    of its signals, as whoever ends it expects.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT and os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            ENDED_BY.append(number)
            sys.unraisablehook = _unheard  # what was half made says so at its end
            warnings.simplefilter("ignore")
            raise KeyboardInterrupt

    hook, before = sys.unraisablehook, {number: signal.getsignal(number) for number in numbers}
    mine = {number: there for number, there in before.items() if there in (signal.default_int_handler, signal.SIG_DFL)}
    try:
        for number in mine:
            signal.signal(number, end)
        yield
    finally:
        if sys.unraisablehook is _unheard:
            sys.unraisablehook = hook
        for number, there in mine.items():
            signal.signal(number, there)


def stopped(error: BaseException | None) -> bool:
    """Returns True if an error comes of Ctrl-C: a library that was being imported makes another error of it."""
    seen = set[int]()
    while error is not None and id(error) not in seen and not isinstance(error, KeyboardInterrupt):
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def serve(app: typer.Typer) -> NoReturn:
    """Runs a command line: a person's mistake is one line and exit code 2, a bug keeps its traceback."""
    prepare_streams()
    with suppress(OSError, RuntimeError, ValueError):  # nobody listens
        faulthandler.enable(all_threads=False)  # a crash of an environment's or a library's native code names its place
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    with ended_by(SIGNALS):
        _serve(app)


def _check_folder() -> None:
    """Raises ConfigError if the working folder was removed: libraries would not find their own files."""
    try:
        Path.cwd()
    except OSError as error:
        raise ConfigError("the working folder is gone: change to one that exists") from error


def _serve(app: typer.Typer) -> NoReturn:
    try:
        _check_folder()
        code = app(standalone_mode=False) or 0
        if code == INTERRUPTED:
            interrupted()
        sys.exit(code)
    except CoterieError as error:
        if ENDED_BY:  # what it interrupted, such as an import, may make another error of it
            interrupted()
        say(f"coterie: {one_line(str(error))}", err=True)
        sys.exit(2)
    except USAGE_ERRORS as error:  # pyright: ignore[reportGeneralTypeIssues]
        message = one_line(error.format_message()).rstrip(".")
        if message.endswith("(-)"):  # the shell has taken the head of the arrow for a redirection
            message += "; quote what holds an arrow, as in 'A -> B', and look after B: the shell has emptied that file"
        say(f"coterie: {message[:1].lower()}{message[1:]}; see {_verb(error)} --help", err=True)
        sys.exit(2)
    except (BrokenPipeError, Unheard):  # the reader has left, as in `| head`
        from coterie.report.terminal import drop

        drop(sys.stdout)
        sys.exit(BROKEN_PIPE)
    except (typer.Abort, KeyboardInterrupt):  # the latter while the commands' options are looked at
        interrupted()
    except Exception as error:
        if ENDED_BY or stopped(error):
            interrupted()
        from coterie import ram
        from coterie.kernel.cursor import PlayBug

        if ram.lacking(error) and not isinstance(error, PlayBug):
            say(f"coterie: there is not enough memory: {first_line(error)}; {LESS}", err=True)
            sys.exit(2)
        if isinstance(error, OSError) and error.errno == errno.EMFILE and not isinstance(error, PlayBug):
            sys.unraisablehook = lambda _: None  # what was half open says so at its end
            warnings.simplefilter("ignore")
            say("coterie: this process may open no more files (see ulimit -n); raise it: ulimit -n 1024", err=True)
            sys.exit(2)
        sys.excepthook = show_bug  # set last, because typer sets a hook of its own
        raise
