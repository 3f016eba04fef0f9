"""Small random targets with recurrent layers, from mlx-lm's own classes."""

from functools import cache
from typing import Any

import mlx.nn as nn

from targets import EXPERTS, LATENT, SIZES, random_model

DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "partial_rotary_factor": 0.5,
    "shared_expert_intermediate_size": 16,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
MAMBA = {"mamba_d_conv": 4, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_n_heads": 4}
# What mlx-lm's module of that name needs beside SIZES. Two layers in four are recurrent, or more.
RECURRENT: dict[str, dict[str, Any]] = {
    "qwen3_5": DELTA,
    "qwen3_5_moe": {**DELTA, **EXPERTS},
    "qwen3_next": {**DELTA, **EXPERTS},
    # Each column of a state decays by itself; attention is latent.
    "kimi_linear": {
        **LATENT,
        **EXPERTS,
        "qk_rope_head_dim": 4,
        "num_experts_per_token": 2,
        "model_max_length": 4096,
        "linear_attn_config": {"num_heads": 4, "head_dim": 8, "kda_layers": [1, 2, 4], "full_attn_layers": [3]},
    },
    "nemotron_h": {
        "hybrid_override_pattern": "M*-M",
        "attention_bias": False,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "mamba_proj_bias": False,
        "ssm_state_size": 16,
        "conv_kernel": 4,
        "n_groups": 2,
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-5,
        "use_bias": False,
        "use_conv_bias": True,
    },
    "mamba2": {
        "num_heads": 4,
        "head_dim": 8,
        "state_size": 16,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 2,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_limit": (0.0, 100.0),
        "time_step_rank": "auto",
    },
    "granitemoehybrid": {
        **MAMBA,
        "attention_bias": False,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 0.35,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "shared_intermediate_size": 32,
    },
    # Attention and recurrence side by side in each layer.
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 32},
    "plamo2": {
        "mamba_num_heads": 4,
        "hidden_size_per_head": 8,
        "mamba_d_state": 16,
        "mamba_step": 2,
    },
    "lfm2": {
        "norm_eps": 1e-6,
        "conv_bias": True,
        "conv_L_cache": 3,
        "block_dim": 32,
        "block_multiple_of": 8,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "lfm2_moe": {
        **EXPERTS,
        "norm_eps": 1e-6,
        "conv_bias": False,
        "conv_L_cache": 3,
        "use_expert_bias": False,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
}


@cache
def recurrent(kind: str) -> nn.Module:
    """A target with recurrent layers from mlx-lm's module `kind`, one of RECURRENT."""
    return random_model(kind, {**SIZES, **RECURRENT[kind]})
