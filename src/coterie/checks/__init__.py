"""Checks before a run: the contract of an environment, and whether the machine can run it."""
