"""Attention of a drafter layer: the block's rows over the target's features and over the block itself."""

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.rope_utils import initialize_rope

from draftledger.drafters.context_cache import ContextCache
from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig


def rope_of(config: DFlashConfig) -> nn.Module:
    """Return the rotary embedding of a head; Gemma's partial one spaces its frequencies over the whole head."""
    share, pairs, scaling, rotated = 1.0, False, config.rope_scaling, config.head_dim
    if isinstance(config, DSparkConfig):
        share, pairs = config.partial_rotary_factor, config.rope_traditional
        if config.family == "gemma4":
            scaling = {"rope_type": "proportional", "partial_rotary_factor": share}
        else:
            rotated = int(config.head_dim * share)
    return initialize_rope(rotated, config.rope_theta, pairs, scaling, config.max_position_embeddings)


class DFlashAttention(nn.Module):
    """Queries from the block, keys and values from context features and block alike, with one norm a head.

    A gated query's second half weighs the output (Qwen3.5); sinks take part of each head's attention (Nemotron).
    """

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        spark = config if isinstance(config, DSparkConfig) else None
        self.heads, self.kv_heads, self.width = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        self.gated, self.shared = bool(spark and spark.gated_query), bool(spark and spark.family == "gemma4")
        self.scale, self.eps = 1.0 if self.shared else self.width**-0.5, config.rms_norm_eps
        queries, keys = self.heads * self.width, self.kv_heads * self.width
        self.q_proj = nn.Linear(config.hidden_size, queries * (1 + self.gated), bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        if not self.shared:
            self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm, self.k_norm = (nn.RMSNorm(self.width, eps=self.eps) for _ in range(2))
        self.rope = rope_of(config)
        if spark and spark.attention_sinks:
            self.sinks = mx.zeros((self.heads,))

    def __call__(self, x: mx.array, context: mx.array, cache: ContextCache, mask: mx.array | str | None) -> mx.array:
        """Append features context [1, n, H], and attend from the block x [1, B, H] after them; [1, B, H]."""
        position = cache.offset + context.shape[1]
        new = cache.fresh(context.shape[1])
        rows = mx.concatenate([context[:, context.shape[1] - new :], x], axis=1)
        keys, values = self.keys_values(rows, offset=position - new)
        keys, values = cache.extend(keys, values, block=x.shape[1], skipped=context.shape[1] - new)
        queries, gate = self.queries(x, offset=position)
        return self.attend(queries, keys, values, mask=mask, gate=gate)

    def queries(self, x: mx.array, *, offset: int | mx.array) -> tuple[mx.array, mx.array | None]:
        """Return queries [N, heads, B, D] of x [N, B, H], from position `offset` on, and their gate [N, B, heads·D]."""
        batch, rows, _ = x.shape
        queries, gate = self.q_proj(x).reshape(batch, rows, self.heads, -1), None
        if self.gated:
            queries, gate = mx.split(queries, 2, axis=-1)
            gate = gate.reshape(batch, rows, -1)
        return self.rope(self.q_norm(queries).transpose(0, 2, 1, 3), offset=offset), gate

    def keys_values(self, x: mx.array, *, offset: int | mx.array) -> tuple[mx.array, mx.array]:
        """Return keys and values [N, kv heads, S, D] of x [N, S, H], whose first row is at position `offset`."""
        keys = self._by_head(self.k_proj(x))
        values = mx.fast.rms_norm(keys, None, self.eps) if self.shared else self._by_head(self.v_proj(x))
        return self.rope(self.k_norm(keys), offset=offset), values

    def attend(
        self, queries: mx.array, keys: mx.array, values: mx.array, *, mask: mx.array | str | None, gate: mx.array | None
    ) -> mx.array:
        """Return the layer's attention output [N, B, H] of queries [N, heads, B, D]."""
        found = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self.scale, mask=mask, sinks=self.get("sinks")
        )
        found = found.transpose(0, 2, 1, 3).reshape(queries.shape[0], queries.shape[2], -1)
        return self.o_proj(found if gate is None else found * mx.sigmoid(gate))

    def _by_head(self, x: mx.array) -> mx.array:
        return x.reshape(*x.shape[:2], self.kv_heads, self.width).transpose(0, 2, 1, 3)
