"""DFlash 2's short causal convolution over a block's rows, with kernels that the rows themselves correct."""

from functools import reduce

import mlx.core as mx
import mlx.nn as nn


class DynamicConvolution(nn.Module):
    """Wraps a sublayer: side 0 filters its input and side 1 its output; both corrections come from the input.

    y_t[c] = sum over o of (base[side, o, c] + delta_t[side, o, group of c]) v_(t-o)[c], with v 0 before the block.
    """

    def __init__(self, hidden: int, *, size: int, group: int) -> None:
        super().__init__()
        self.size, self.group = size, group
        self.base_kernel = mx.zeros((2, size, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * size * (hidden // group), bias=False)

    def kernels(self, x: mx.array) -> mx.array:
        """Return the kernels [N, B, 2, size, H / group, group] of the rows x [N, B, H]."""
        groups = x.shape[-1] // self.group
        base = self.base_kernel.reshape(2, self.size, groups, self.group).astype(x.dtype)
        return base + self.kernel_projection(x).reshape(*x.shape[:2], 2, self.size, groups, 1)

    def filtered(self, values: mx.array, kernels: mx.array) -> mx.array:
        """Return values [N, B, H] filtered by one side's kernels [N, B, size, H / group, group]."""
        rows = values.shape[1]
        grouped = mx.pad(values, [(0, 0), (self.size - 1, 0), (0, 0)]).reshape(values.shape[0], -1, *kernels.shape[3:])
        shifted = (grouped[:, self.size - 1 - o : self.size - 1 - o + rows] for o in range(self.size))
        parts = [kernels[:, :, o] * value for o, value in enumerate(shifted)]
        return reduce(mx.add, parts).reshape(values.shape)
