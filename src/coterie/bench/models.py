"""Random models of the sizes that benchmarks name."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from coterie.models.load import Model, load_model, prepare


def medium() -> Model:
    """3.3 million parameters: 4 layers of width 256, 8 heads, 4 of them for keys and values."""
    torch.manual_seed(0)
    tokenizer = load_model("starter").tokenizer
    net = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=448,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    return prepare(net, tokenizer)
