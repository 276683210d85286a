"""Protocols of OpenAI's clients: chat completions, responses, and calls of tools."""
