"""Existing agents, run without changes: a team answers their requests to a model."""
