"""Environments that are shipped, one file each."""
