"""What a run is told: its settings, how they are read, and every check."""
