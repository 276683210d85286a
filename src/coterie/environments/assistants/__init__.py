"""A master and its specialists."""
