"""Weights, tokenizers, and how a prompt is rendered."""
