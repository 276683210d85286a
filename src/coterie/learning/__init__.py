"""Learning: rows, the shared-prefix forward, losses, optimizer steps."""
