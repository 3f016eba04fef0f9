"""The gated delta recurrence token by token: mlx-lm's kernel on Metal, its loop over operations elsewhere."""

from collections.abc import Callable

import mlx.core as mx
from mlx_lm.models.gated_delta import gated_delta_kernel, gated_delta_ops

Step = Callable[[mx.array, mx.array, mx.array, mx.array, mx.array], tuple[mx.array, mx.array]]

WARP = 32


def kernel(key_width: int) -> Step | None:
    """Return this machine's kernel for keys of that width, or null where there is none."""
    fits = mx.metal.is_available() and mx.default_device() != mx.cpu and key_width % WARP == 0
    return _on_metal if fits else None


def in_operations(
    qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Run the recurrence by mlx-lm's loop over tokens; return y: [B, T, Hv, Dv] and the last state."""
    q, k = (qk[:, :, part].swapaxes(1, 2) for part in (0, 1))
    return gated_delta_ops(q, k, v, mx.exp(log_g), beta, state)


def _on_metal(qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    q, k = (qk[:, :, part].swapaxes(1, 2) for part in (0, 1))
    return gated_delta_kernel(q, k, v, mx.exp(log_g), beta, state)
