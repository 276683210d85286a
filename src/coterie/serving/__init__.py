"""A trained team behind an endpoint that OpenAI's clients know."""
