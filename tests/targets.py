"""Small random targets from mlx-lm's own classes whose greedy answers vary, for tests of exactness."""

from functools import cache
from importlib import import_module
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.models.cache import QuantizedKVCache

from draftledger.decoding.loop import Limits, decode
from draftledger.drafters.ar import Silent
from draftledger.models.state import TargetState
from draftledger.models.tiny import architecture, build_model

VOCABULARY = 96
SPEC = {"width": 32, "heads": 4, "layers": 4, "attention_every": 4}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8, "qk_nope_head_dim": 8}
# What mlx-lm's module of that name needs beside SIZES; windows and chunks are smaller than blocks.
ATTENTION: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "qwen3_moe": {**EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": []},
    # Every other layer sees a window of five tokens.
    "gemma3_text": {"query_pre_attn_scalar": 8, "sliding_window": 5, "sliding_window_pattern": 2},
    # Attention sinks and experts, a window of six.
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    # Layers return tuples; the last two use keys and values of earlier ones.
    "gemma4_text": {
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "global_head_dim": 8,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
    },
    # Three of four layers see no further than the current chunk of six; some have experts.
    "llama4": {
        "text_config": {
            **SIZES,
            "model_type": "llama4_text",
            "attention_bias": False,
            "attention_chunk_size": 6,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 64,
            "num_experts_per_tok": 1,
            "num_local_experts": 4,
            "rope_scaling": None,
            "use_qk_norm": True,
        }
    },
    # Two caches a layer: latent attention to the six best tokens, and the index that finds them.
    "deepseek_v32": {
        **EXPERTS,
        **LATENT,
        "num_key_value_heads": 4,
        "index_head_dim": 16,
        "index_n_heads": 2,
        "index_topk": 6,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "first_k_dense_replace": 1,
    },
}


@cache
def attention(kind: str) -> nn.Module:
    """A target without recurrent layers from mlx-lm's module `kind`, one of ATTENTION."""
    return random_model(kind, {**SIZES, **ATTENTION[kind]})


def random_model(kind: str, settings: dict[str, Any]) -> nn.Module:
    """A model of mlx-lm's module `kind` with weights wide enough for its answers to vary."""
    module = import_module(f"mlx_lm.models.{kind}")
    mx.random.seed(0)  # some layers draw their decays
    model = module.Model(module.ModelArgs.from_dict({"model_type": kind, **settings}))
    model.eval()
    drawn = []
    for index, (name, value) in enumerate(sorted(_flat(model).items())):
        noise = mx.random.normal(value.shape, key=mx.random.key(index))
        spread = 1.0 if "embed" in name else 1.5 * value.shape[-1] ** -0.5
        drawn.append((name, spread * noise if value.ndim > 1 else value + 0.1 * noise))
    model.load_weights(drawn)
    mx.eval(model.parameters())
    return model


class Quantised(nn.Module):
    """A target whose caches hold keys and values of eight bits."""

    def __init__(self) -> None:
        super().__init__()
        self.model = random_model("qwen3", {**SIZES, "head_dim": 32})

    @property
    def layers(self) -> list[nn.Module]:
        """The target's layers."""
        return self.model.layers

    def make_cache(self) -> list[QuantizedKVCache]:
        """One cache a layer."""
        return [QuantizedKVCache(group_size=32, bits=8) for _ in self.layers]

    def __call__(self, ids: mx.array, cache: Any = None) -> mx.array:
        """Logits of ids."""
        return self.model(ids, cache=cache)


@cache
def quantised() -> nn.Module:
    """Dense attention over quantised keys and values."""
    return Quantised()


@cache
def hybrid() -> nn.Module:
    """Three gated-delta layers that remember and one of attention, untied head.

    Fast decay would forget a faulty state, and leave outputs near zero, of which a norm makes noise.
    """
    model = build_model(architecture(SPEC, vocabulary=VOCABULARY, eos=VOCABULARY - 1), seed=3)
    slower = {name: value - 3 for name, value in _flat(model).items() if name.endswith("A_log")}
    model.load_weights(list(slower.items()), strict=False)
    model.eval()
    mx.eval(model.parameters())
    return model


@cache
def dense(tied: bool = False) -> nn.Module:
    """Two layers of attention with grouped keys."""
    mx.random.seed(5)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=32,
            num_hidden_layers=2,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
            vocab_size=VOCABULARY,
            tie_word_embeddings=tied,
        )
    )
    model.update_modules({})
    model.eval()
    scaled = {name: value * 6 for name, value in _flat(model).items() if "proj" in name or "embed" in name}
    model.load_weights(list(scaled.items()), strict=False)
    mx.eval(model.parameters())
    return model


def _flat(model: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


class Fixed(nn.Module):
    """A target without layers whose row after token t is a given one."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table, self.layers = mx.array(table), []

    def __call__(self, ids: mx.array, cache=None) -> mx.array:
        return self.table[ids]


def prompt(length: int = 9, key: int = 0) -> mx.array:
    """A random prompt [length] int32."""
    return mx.random.randint(0, VOCABULARY, (length,), dtype=mx.int32, key=mx.random.key(key))


def greedy(model: nn.Module, ids: mx.array, count: int, eos: frozenset[int] = frozenset()) -> list[int]:
    """The autoregressive answer of our loop."""
    rounds = decode(TargetState(model), Silent(), ids, k=0, limits=Limits(count, eos))
    return [token for result in rounds for token in result.committed]


def naive(model: nn.Module, ids: mx.array, count: int) -> list[int]:
    """The answer by whole forward passes without any cache: the independent reference."""
    tokens = ids.tolist()
    for _ in range(count):
        tokens.append(int(mx.argmax(model(mx.array([tokens]))[0, -1]).item()))
    return tokens[ids.size :]
