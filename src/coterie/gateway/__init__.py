"""Agents that exist, played as they are: where they ask for a model's words, a team answers."""
