"""Data sets as they were published: where rows come from, and what each is for."""
