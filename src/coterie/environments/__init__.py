"""Parts that worlds are made of, and the environments of a user's own prompts and agents."""
