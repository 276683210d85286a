"""What OpenAI's clients send and read: chat completions, responses, and calls of tools."""
