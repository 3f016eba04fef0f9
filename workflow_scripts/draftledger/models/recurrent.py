"""What mlx-lm's recurrent layers do besides: run a block at once, and note how to go back to any of its tokens."""

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import ArraysCache

from draftledger.models.gated_delta import gated_delta
from draftledger.models.recurrent_cache import RecurrentCache, StateAfter


class Recurrent(nn.Module):
    """The first base of a twin class, whose second is mlx-lm's: same children, weights and function."""

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any:
            """Stand for what the second base has."""


class GatedDelta(Recurrent):
    """The gated-delta layer of Qwen3.5."""

    def __call__(self, inputs: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
        """Map inputs: [B, T, D] to [B, T, D]; padded, sharded and single ones as mlx-lm does."""
        batch, width, _ = inputs.shape
        if _is_theirs(width, mask) or getattr(self, "sharding_group", None) is not None:
            return super().__call__(inputs, mask, cache)
        mixed, z, a, b = self.projected(inputs)
        mixed = _convolved(_windowed(mixed, cache, size=self.conv_kernel_size - 1), self.conv1d.weight)
        qk, v = mx.split(mixed, [2 * self.key_dim], axis=-1)
        qk = _unit(qk.reshape(batch, width, 2, self.num_k_heads, -1))
        v = v.reshape(batch, width, self.num_v_heads, -1)
        log_g, beta = _gates(self.A_log, self.dt_bias, a, b)
        y = _recurrence(qk, v, log_g, beta, cache, 1)
        y = self.norm(y.astype(inputs.dtype), z.reshape(y.shape))
        return self.out_proj(y.reshape(batch, width, -1))

    def projected(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Return queries, keys and values side by side, the output's gate, and what decay and beta are made of."""
        return self.in_proj_qkv(x), self.in_proj_z(x), self.in_proj_a(x), self.in_proj_b(x)


class NextGatedDelta(GatedDelta):
    """The gated-delta layer of Qwen3-Next, which projects head by head."""

    def projected(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Return what the layer of Qwen3.5 does."""
        q, k, v, z, b, a = self.fix_query_key_value_ordering(self.in_proj_qkvz(x), self.in_proj_ba(x))
        return mx.concatenate([part.flatten(2) for part in (q, k, v)], axis=-1), z, a, b


class KimiDelta(Recurrent):
    """The delta attention of Kimi Linear, where each column of a state decays by itself."""

    def __call__(self, x: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
        """Map x: [B, T, D] to [B, T, D]; padded and single ones as mlx-lm does."""
        if _is_theirs(x.shape[1], mask):
            return super().__call__(x, mask, cache)
        heads = (*x.shape[:2], self.num_heads, self.head_dim)
        q, k, v = (
            _convolved(_windowed(project(x), cache, slot, size=self.conv_kernel - 1), convolution.conv.weight).reshape(
                heads
            )
            for slot, (project, convolution) in enumerate(
                ((self.q_proj, self.q_conv), (self.k_proj, self.k_conv), (self.v_proj, self.v_conv))
            )
        )
        a, gate = (
            down(up(x)).reshape(heads) for up, down in ((self.f_a_proj, self.f_b_proj), (self.g_a_proj, self.g_b_proj))
        )
        log_g, beta = _gates(self.A_log.reshape(-1, 1), self.dt_bias.reshape(heads[2:]), a, self.b_proj(x))
        y = _recurrence(_unit(mx.stack([q, k], axis=2)), v, log_g, beta, cache, 3)
        return self.o_proj((self.o_norm(y.astype(x.dtype)) * mx.sigmoid(gate)).flatten(2))


class Mamba2(Recurrent):
    """A Mamba-2 mixer: its own recurrence is run again over the kept tokens, without their outputs."""

    def _conv(self, conv_input: mx.array, cache: Any, mask: mx.array | None) -> mx.array:
        theirs: Any = super()
        before, size = None if cache is None else cache[0], self.conv_kernel_size - 1
        output = theirs._conv(conv_input, cache, mask)
        _note(cache, 0, lambda count: _padded(before, conv_input, size)[:, count : count + size])
        return output

    def _ssm(self, x: mx.array, B: mx.array, C: mx.array, dt: mx.array, cache: Any, mask: mx.array | None) -> mx.array:
        theirs: Any = super()
        before = None if cache is None else cache[1]

        def after(count: int) -> mx.array:
            scratch = ArraysCache(2)
            scratch[1] = before
            theirs._ssm(*(part[:, :count] for part in (x, B, C, dt)), scratch, None)
            return scratch[1]

        output = theirs._ssm(x, B, C, dt, cache, mask)
        _note(cache, 1, after)
        return output


class ShortConv(Recurrent):
    """The gated convolution of LFM2."""

    def __call__(self, x: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
        """Map x: [B, T, D] to [B, T, D]; outside a block as mlx-lm does."""
        if mask is not None or not isinstance(cache, RecurrentCache):
            return super().__call__(x, mask, cache)
        before, gate, x = mx.split(self.in_proj(x), 3, axis=-1)
        return self.out_proj(gate * self.conv(_windowed(before * x, cache, size=self.L_cache - 1)))


def _is_theirs(width: int, mask: mx.array | None) -> bool:
    return mask is not None or width == 1


def _note(cache: Any, slot: int, after: StateAfter) -> None:
    if isinstance(cache, RecurrentCache):
        cache.note(slot, after)


def _windowed(x: mx.array, cache: Any, slot: int = 0, *, size: int) -> mx.array:
    """Put the `size` inputs before x: [B, T, D] in front of it, and keep the last in the cache."""
    padded = _padded(None if cache is None else cache[slot], x, size)
    if cache is not None:
        cache[slot] = mx.contiguous(padded[:, -size:])
        _note(cache, slot, lambda count: mx.contiguous(padded[:, count : count + size]))
    return padded


def _padded(before: mx.array | None, x: mx.array, size: int) -> mx.array:
    if before is None:
        before = mx.zeros((x.shape[0], size, x.shape[2]), dtype=x.dtype)
    return mx.concatenate([before, x], axis=1)


def _recurrence(qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, cache: Any, slot: int) -> mx.array:
    """Run a gated-delta layer's recurrence on the state in the cache, or on none."""
    state = None if cache is None else cache[slot]
    if state is None:
        state = mx.zeros((v.shape[0], v.shape[2], v.shape[3], qk.shape[-1]))
    fused = isinstance(cache, RecurrentCache)  # decoding, which nobody differentiates
    y, after = gated_delta(qk, v, log_g=log_g, beta=beta, state=state, fused=fused)
    if cache is not None:
        cache[slot] = after(v.shape[1])
        _note(cache, slot, after)
    return y


@mx.compile
def _convolved(padded: mx.array, weight: mx.array) -> mx.array:
    # MLX's own depthwise convolution takes ten times as long on a CPU (8192 channels, 5 tokens: 1.7 ms against .16).
    size = weight.shape[1]
    width = padded.shape[1] - size + 1
    terms = [padded[:, tap : tap + width].astype(mx.float32) * weight[:, tap, 0] for tap in range(size)]
    return nn.silu(sum(terms[1:], start=terms[0]).astype(padded.dtype))


@mx.compile
def _unit(qk: mx.array) -> mx.array:
    """Normalise queries and keys: [B, T, 2, H, D] to [B, H, 2, T, D], as mlx-lm's `normalize_qk` does."""
    scale = qk.shape[-1] ** -0.5
    scales = mx.array([scale * scale, scale], dtype=qk.dtype)[:, None, None]
    unit = scales * mx.fast.rms_norm(qk.transpose(0, 3, 2, 1, 4), None, 1e-6 * scale * scale)
    return unit.astype(mx.float32)


@mx.compile
def _gates(A_log: mx.array, dt_bias: mx.array, a: mx.array, b: mx.array) -> tuple[mx.array, mx.array]:
    """Return the logarithm of mlx-lm's `compute_g`, and beta."""
    return -mx.exp(A_log.astype(mx.float32)) * nn.softplus(a + dt_bias), mx.sigmoid(b)
