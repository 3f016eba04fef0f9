"""NVIDIA's four-bit weights (ModelOpt NVFP4): told by their scales, and brought back to floating point."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from draftledger.errors import UnsupportedError
from draftledger.models.folder import Tensor

SCALES = ("_scale", "_scale_2")
UNUSED = ".input_scale"
GROUP = 16
# What may be four-bit; embeddings and codebooks stay as they were trained.
LINEAR = ("_proj.weight", "fc.weight")
PLAIN = ("F32", "BF16", "F16", "I64", "I32", "BOOL")
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def packed_names(tensors: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the linear layers' weights that are four-bit: bytes of two values each, with both their scales."""
    named = (name for name, tensor in tensors.items() if tensor.dtype == "U8" and name.endswith(LINEAR))
    return frozenset(name for name in named if all(f"{name}{end}" in tensors for end in SCALES))


def float_shapes(tensors: Mapping[str, Tensor], *, where: str) -> dict[str, tuple[int, ...]]:
    """Return every weight's shape as it is in floating point, scales left out.

    Raises UnsupportedError for a weight that is quantised in another way, or that may not be, such as a codebook.
    """
    packed = packed_names(tensors)
    scales = {f"{name}{end}" for name in packed for end in SCALES}
    shapes = {}
    for name, tensor in tensors.items():
        if name in scales or name.endswith(UNUSED):
            continue
        if tensor.dtype not in PLAIN and name not in packed:
            raise UnsupportedError(f"{where}: {name} is {tensor.dtype}; only NVFP4 linear layers are dequantised")
        shapes[name] = (*tensor.shape[:-1], 2 * tensor.shape[-1]) if name in packed else tensor.shape
    return shapes


def unpacked(name: str, tensors: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Return a packed weight [out, in]: value · its group's scale (E4M3, 16 values each) · the tensor's scale."""
    weight, scale, whole = (tensors[f"{name}{end}"] for end in ("", *SCALES))
    pairs = np.frombuffer(weight.read(), np.uint8).reshape(weight.shape)
    values = E2M1[np.stack([pairs & 15, pairs >> 4], axis=-1)].reshape(*weight.shape[:-1], -1)
    groups = e4m3(np.frombuffer(scale.read(), np.uint8).reshape(scale.shape))
    return values * np.repeat(groups, GROUP, axis=-1) * np.frombuffer(whole.read(), np.float32)


def e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the values of eight-bit floats: sign, four exponent bits with bias 7, three of mantissa; no infinity."""
    exponent, mantissa = (codes >> 3) & 15, (codes & 7).astype(np.float32) / 8
    size = np.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * np.exp2(exponent.astype(np.float32) - 7))
    size = np.where((codes & 127) == 127, np.nan, size)
    return np.where(codes >> 7, -size, size).astype(np.float32)
