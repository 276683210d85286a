"""Entry point of `python -m coterie`, which does the same as the command `coterie`."""

from coterie.cli import main

main()
