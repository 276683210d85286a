"""Small networks of many families with random weights; `python -m tests.families` prints the table of their page.

Weights are drawn large and windows made small, so that what is wrong shows.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from coterie.checks.families import check_family
from coterie.engines.decoding import Decoder
from coterie.errors import ConfigError
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models.load import Model, prepare
from tests.toys import tiny

Settings = dict[str, Any]

SMALL: Settings = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "sliding_window": 8,
    "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 256, "ffn_dim": 96, "word_embed_proj_dim": 64,
    "moe_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Sizes, by all the names that families have for them; each takes those that it knows."""
LATENT: Settings = {
    "head_dim": None, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "num_key_value_heads": 4, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
    "n_shared_experts": 1,
}  # fmt: skip
MAMBA: Settings = {
    "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 16,
    "mamba_n_groups": 1, "mamba_chunk_size": 16, "mamba_d_ssm": 128, "mamba_dt_rank": 8, "use_mamba_kernels": False,
}  # fmt: skip
DELTA: Settings = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
MIXED: Settings = {"layer_types": ["sliding_attention", "full_attention"] * 2}
ROTARY: Settings = {"rotary_dim": 8, "head_dim": None}
OF_REVIEW: dict[str, Settings] = {
    "llama": {}, "qwen2": {"use_sliding_window": True, "max_window_layers": 2}, "qwen3": {}, "qwen3_moe": {},
    "mistral": {}, "phi3": {}, "mixtral": {}, "gemma": {}, "gemma2": MIXED, "gemma3_text": MIXED, "smollm3": {},
    "gpt2": {}, "gpt_neox": {}, "olmo2": {}, "olmo3": MIXED, "glm4": {}, "deepseek_v3": LATENT, "gpt_oss": MIXED,
    "exaone4": MIXED, "granite": {}, "cohere": {}, "cohere2": MIXED, "opt": {}, "bloom": {},
    "llama4_text": {"attention_chunk_size": 8, "no_rope_layers": [1, 1, 1, 0]},
    "falcon_h1": MAMBA, "bamba": MAMBA | {"attn_layer_indices": [1, 3]},
    "jamba": MAMBA | {"attn_layer_period": 2, "attn_layer_offset": 1},
    "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention"] * 2, "shared_intermediate_size": 32},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2}, "qwen3_next": DELTA, "qwen3_5_text": DELTA,
    "nemotron_h": {}, "mamba2": {"num_heads": 8, "state_size": 8, "n_groups": 1, "chunk_size": 16}, "xlstm": {},
}  # fmt: skip
"""Families that were looked at from outside, each with its settings."""
SINCE: dict[str, Settings] = {
    "ministral": MIXED, "ministral3": {}, "starcoder2": {}, "arcee": {}, "apertus": {}, "afmoe": MIXED, "cwm": MIXED,
    "ernie4_5": {}, "ernie4_5_moe": {}, "exaone_moe": MIXED, "falcon": {"head_dim": None}, "gemma3n_text": MIXED | {
        "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 320,
        "laurel_rank": 8, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0] * 4},
    "glm": {}, "glm4_moe": {}, "glm4_moe_lite": LATENT, "gptj": ROTARY, "codegen": ROTARY, "granitemoe": {},
    "granite_swa": MIXED, "helium": {}, "hunyuan_v1_dense": {}, "minicpm3": LATENT, "minimax_m2": {}, "mpt": {},
    "nanochat": {}, "nemotron": {}, "olmo": {}, "olmoe": {}, "olmo_hybrid": DELTA, "persimmon": {}, "phi": {},
    "phimoe": {}, "qwen2_moe": {}, "seed_oss": {}, "solar_open": {}, "stablelm": {}, "vaultgemma": MIXED,
    "youtu": LATENT, "deepseek_v2": LATENT,
    "dots1": {"first_k_dense_replace": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    "xglm": {"d_model": 64, "attention_heads": 4, "num_layers": 4}, "biogpt": {}, "mamba": {}, "rwkv": {},
}  # fmt: skip
"""Families that the library knows beside them."""
FAMILIES = OF_REVIEW | SINCE


def family(name: str) -> Model:
    """A small model of a family, as it would be loaded."""
    kind = CONFIG_MAPPING[name]
    known = kind()
    sizes = {key: value for key, value in SMALL.items() if hasattr(known, key) or key in known.attribute_map}
    settings = {key: value for key, value in (sizes | FAMILIES[name]).items() if value is not None}
    torch.manual_seed(0)
    net = AutoModelForCausalLM.from_config(kind(**settings))
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.25)
            else:
                weight.add_(torch.randn_like(weight) * 0.05)
    return prepare(net, tiny().tokenizer)


def found(name: str) -> str:
    """How a family is run: a row of the table."""
    try:
        policy = Policy("p", family(name), optimizer=OptimizerConfig(checkpointing=True))
        check_family(policy)
    except ConfigError as error:
        reason = str(error).partition(f"'{name}' ")[2]
        return f"| `{name}` | refused | | | {reason} |"
    how = "exact, packed" if policy.model.packs else "exact, row by row"
    window = next((limit for limit in ("sliding_window", "attention_chunk_size") if _has(policy.model, limit)), "")
    remark = {"sliding_window": "longer than its window", "attention_chunk_size": "longer than its chunk", "": ""}[
        window
    ]
    long = ("by parts" if policy.model.splits else "masked") if policy.model.packs else ""
    return f"| `{name}` | {how} | {long} | {'lean' if Decoder(policy).lean else 'modules'} | {remark} |"


def _has(model: Model, limit: str) -> bool:
    config = model.config
    kinds = getattr(config, "layer_types", None)
    kind = {"sliding_window": "sliding_attention", "attention_chunk_size": "chunked_attention"}[limit]
    return bool(getattr(config, limit, None)) and (kinds is None or kind in kinds)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for one in sorted(FAMILIES):
        print(found(one), flush=True)  # noqa: T201
