"""Random models of the sizes that benchmarks name."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from coterie.models.load import Model, load_model, prepare


def medium() -> Model:
    """Returns a model of 3.3 million parameters: 4 layers of width 256, 8 heads, 4 of them for keys and values."""
    return random_qwen3(448, 256, 768, layers=4, heads=8, head_dim=32)


def random_qwen3(
    vocabulary: int,
    width: int,
    inner: int,
    *,
    layers: int,
    heads: int,
    kv_heads: int = 4,
    head_dim: int = 64,
    context: int = 1024,
    tied: bool = True,
) -> Model:
    """Returns a network of Qwen3's shape with random weights, and the starter's tokenizer.

    Args:
        tied: the output layer's weights are the embedding's.
    """
    torch.manual_seed(0)
    tokenizer = load_model("starter").tokenizer
    net = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=context,
            tie_word_embeddings=tied,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    return prepare(net, tokenizer)
