"""The gated delta recurrence over many tokens at once, in plain MLX operations."""

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.gated_delta import normalize_qk
from mlx_lm.models.qwen3_5 import GatedDeltaNet

CHUNK = 16


def gated_delta_chunks(
    q: mx.array, k: mx.array, v: mx.array, *, log_g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Run S ← g·S + β(v − g·S k)kᵀ, y = S q over T tokens, sixteen at a time (Gated DeltaNet, 2412.06464).

    q, k: [B, T, H, Dk] float32; v: [B, T, H, Dv]; log_g, beta: [B, T, H]; state: [B, H, Dv, Dk].
    Returns y: [B, T, H, Dv] and the state after the last token.
    """
    outputs = []
    for start in range(0, q.shape[1], CHUNK):
        rows = slice(start, start + CHUNK)
        y, state = _chunk(q[:, rows], k[:, rows], v[:, rows], log_g[:, rows], beta[:, rows], state)
        outputs.append(y)
    return mx.concatenate(outputs, axis=1), state


def _chunk(
    q: mx.array, k: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))  # [B, H, C, D]
    level = mx.cumsum(log_g.swapaxes(1, 2), axis=-1)  # log of the decay since the chunk's start
    beta = beta.swapaxes(1, 2)[..., None]
    tokens = mx.arange(q.shape[2])
    causal = tokens[:, None] >= tokens[None]
    decay = mx.exp(mx.where(causal, level[..., :, None] - level[..., None, :], -mx.inf))
    since = mx.exp(level)[..., None]
    strict = mx.where(tokens[:, None] > tokens[None], decay, 0)
    mixing = beta * strict * (k @ k.swapaxes(-1, -2))
    target = beta * (v - since * (k @ state.swapaxes(-1, -2)))
    update = _unit_lower_inverse(mixing) @ target  # what each token writes: [B, H, C, Dv]
    y = since * (q @ state.swapaxes(-1, -2)) + (decay * (q @ k.swapaxes(-1, -2))) @ update
    kept = mx.exp(level[..., -1:] - level)[..., None]
    state = since[..., -1:, :] * state + (kept * update).swapaxes(-1, -2) @ k
    return y.swapaxes(1, 2), state


def _unit_lower_inverse(mixing: mx.array) -> mx.array:
    """Return (I + N)⁻¹ of a strictly lower triangular N by halves, down to (I − N)(I + N²) for size 4.

    Powers of a whole chunk's N would grow and cancel where its keys are alike.
    """
    size = mixing.shape[-1]
    if size <= 4:
        identity = mx.eye(size)
        return (identity - mixing) @ (identity + mixing @ mixing)
    half = size // 2
    first, last = (_unit_lower_inverse(mixing[..., part, part]) for part in (slice(half), slice(half, None)))
    corner = -(last @ mixing[..., half:, :half]) @ first
    above = mx.zeros((*mixing.shape[:-2], half, size - half))
    rows = [mx.concatenate(pair, axis=-1) for pair in ([first, above], [corner, last])]
    return mx.concatenate(rows, axis=-2)


class ChunkedGatedDeltaNet(nn.Module):
    """A gated-delta layer without cache whose recurrence runs in chunks: for training a target from scratch."""

    def __init__(self, base: GatedDeltaNet) -> None:
        super().__init__()
        self.base = base

    def __call__(self, x: mx.array, mask: mx.array | None = None, cache: None = None) -> mx.array:
        """Map x: [B, T, D] float32 to [B, T, D], starting from the empty state."""
        net, (batch, length, _) = self.base, x.shape
        before = mx.zeros((batch, net.conv_kernel_size - 1, net.conv_dim), dtype=x.dtype)
        mixed = nn.silu(net.conv1d(mx.concatenate([before, net.in_proj_qkv(x)], axis=1)))
        q, k, v = mx.split(mixed, [net.key_dim, 2 * net.key_dim], axis=-1)
        q, k = (y.reshape(batch, length, net.num_k_heads, net.head_k_dim) for y in (q, k))
        q, k = normalize_qk(q, k, inv_scale=net.head_k_dim**-0.5, eps=1e-6)
        repeat = net.num_v_heads // net.num_k_heads
        log_g = -mx.exp(net.A_log) * nn.softplus(net.in_proj_a(x) + net.dt_bias)
        y, _ = gated_delta_chunks(
            mx.repeat(q, repeat, axis=2),
            mx.repeat(k, repeat, axis=2),
            v.reshape(batch, length, net.num_v_heads, net.head_v_dim),
            log_g=log_g,
            beta=mx.sigmoid(net.in_proj_b(x)),
            state=mx.zeros((batch, net.num_v_heads, net.head_v_dim, net.head_k_dim)),
        )
        gate = net.in_proj_z(x).reshape(batch, length, net.num_v_heads, net.head_v_dim)
        return net.out_proj(net.norm(y, gate).reshape(batch, length, -1))
