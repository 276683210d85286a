"""`python -m coterie` is `coterie`."""

from coterie.cli import main

main()
