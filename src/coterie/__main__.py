"""Entry point of the command `coterie` and of `python -m coterie`."""

import os
import sys


def main() -> None:
    """Runs the command line; Ctrl-C while it is still being imported ends it like later."""
    try:
        from coterie.cli import main as run
    except KeyboardInterrupt:
        os.write(2, b"\ncoterie: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
