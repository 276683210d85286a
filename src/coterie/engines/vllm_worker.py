"""Code that runs inside vLLM's worker and loads weights from a file. Only the worker imports it."""

from __future__ import annotations

from safetensors.torch import load_file


class Weights:
    """A part of vLLM's worker that loads weights from a file."""

    def take_weights(self, file: str) -> None:
        """Loads whole weights under their names in Hugging Face's folders, the output layer's included."""
        self.reload_weights(weights_iterator=iter(load_file(file).items()))  # pyright: ignore[reportAttributeAccessIssue]
