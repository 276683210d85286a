"""Samplers: how a task is played so that replies can be compared. One file each."""
