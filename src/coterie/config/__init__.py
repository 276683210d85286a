"""The settings of a run: their definitions, how they are read, and how they are checked."""
