"""Writing: two roles write parts of one text at once."""
