"""Entry point of the command `coterie` and of `python -m coterie`."""

import atexit
import os
import sys


def main() -> None:
    """Runs the command line; Ctrl-C while it is still being imported ends it like later.

    Python ends a process by SIGINT, whatever its exit code, if an interrupt has come out of a text that was executed,
    such as a dataclass in the making. So a command that a signal has ended leaves by itself.
    """
    try:
        from coterie.cli import main as run
        from coterie.report.output import ENDED_BY
    except KeyboardInterrupt:
        os.write(2, b"\ncoterie: interrupted\n")
        sys.exit(130)
    try:
        run()
    except SystemExit as ended:
        if ENDED_BY and isinstance(ended.code, int):
            atexit._run_exitfuncs()  # noqa: SLF001
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code)
        raise


if __name__ == "__main__":
    main()
