"""The gated delta recurrence token by token as one kernel each: mlx-lm's on Metal, and one for CUDA, to decode with."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
from mlx_lm.models.gated_delta import gated_delta_kernel, gated_delta_ops

Step = Callable[[mx.array, mx.array, mx.array, mx.array, mx.array], tuple[mx.array, mx.array]]

WARP = 32
ROWS = 4  # warps a thread block

# One warp holds one row of a state, lane by lane, over all tokens.
_HEADER = """
__device__ inline float over_warp(float x) {
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
  return x;
}
"""
_SOURCE = """
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= Dv) return;
  const int batch = blockIdx.z / Hv, head = blockIdx.z % Hv, tokens = v_shape[1];
  const float* queries = qk + (size_t)(batch * Hk + head / (Hv / Hk)) * 2 * tokens * Dk;
  const float* keys = queries + (size_t)tokens * Dk;
  const size_t place = ((size_t)blockIdx.z * Dv + row) * Dk;
  float held[Dk / 32];
  for (int i = 0; i < Dk / 32; ++i) held[i] = state[place + 32 * i + threadIdx.x];
  for (int t = 0; t < tokens; ++t) {
    const size_t at = ((size_t)batch * tokens + t) * Hv + head;
    float known = 0;
    for (int i = 0; i < Dk / 32; ++i) {
      const int column = 32 * i + threadIdx.x;
      held[i] *= expf(log_g[by_column ? at * Dk + column : at]);
      known += held[i] * keys[t * Dk + column];
    }
    const float write = (static_cast<float>(v[at * Dv + row]) - over_warp(known)) * static_cast<float>(beta[at]);
    float told = 0;
    for (int i = 0; i < Dk / 32; ++i) {
      const int column = 32 * i + threadIdx.x;
      held[i] += write * keys[t * Dk + column];
      told += held[i] * queries[t * Dk + column];
    }
    told = over_warp(told);
    if (threadIdx.x == 0) y[at * Dv + row] = told;
  }
  for (int i = 0; i < Dk / 32; ++i) after[place + 32 * i + threadIdx.x] = held[i];
"""


def kernel(key_width: int) -> Step | None:
    """Return this machine's kernel for keys of that width, or null where there is none."""
    if mx.default_device() == mx.cpu or key_width % WARP:
        return None
    return _on_metal if mx.metal.is_available() else _on_cuda


def in_operations(
    qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Run the recurrence by mlx-lm's loop over tokens; return y: [B, T, Hv, Dv] and the last state."""
    q, k = (qk[:, :, part].swapaxes(1, 2) for part in (0, 1))
    return gated_delta_ops(q, k, v, mx.exp(log_g), beta, state)


def _on_metal(qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    q, k = (qk[:, :, part].swapaxes(1, 2) for part in (0, 1))
    return gated_delta_kernel(q, k, v, mx.exp(log_g), beta, state)


def _on_cuda(qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    (batch, tokens, heads, rows), columns = v.shape, qk.shape[-1]
    sizes = {"Hk": qk.shape[1], "Hv": heads, "Dk": columns, "Dv": rows, "by_column": log_g.ndim == 4}
    y, after = _compiled()(
        inputs=[qk.astype(mx.float32), v, log_g.astype(mx.float32), beta, state],
        # The types too: they are part of the source, and the kernel is looked up by these alone.
        template=[*sizes.items(), ("value", v.dtype), ("strength", beta.dtype)],
        grid=(WARP, -(-rows // ROWS) * ROWS, batch * heads),
        threadgroup=(WARP, ROWS, 1),
        output_shapes=[(batch, tokens, heads, rows), state.shape],
        output_dtypes=[mx.float32, mx.float32],
    )
    return y, after


@cache
def _compiled() -> Any:
    return mx.fast.cuda_kernel(
        name="gated_delta",
        input_names=["qk", "v", "log_g", "beta", "state"],
        output_names=["y", "after"],
        header=_HEADER,
        source=_SOURCE,
    )
