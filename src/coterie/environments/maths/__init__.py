"""Mathematics: reasoners and tool users, and what answers are equal."""
