"""What is proved before a run: an environment's contract, a machine's fitness."""
