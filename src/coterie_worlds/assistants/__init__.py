"""Assistants: a master answers a user's queries with the help of its specialists."""
