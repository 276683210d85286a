"""Games: a board that a proposer and a planner work on in turns."""
