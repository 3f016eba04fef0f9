"""Keyed, stateless randomness: a draw depends on (seed, stream, step) and on nothing that ran before."""

import hashlib

import mlx.core as mx
import numpy as np


def key_of(seed: int, stream: str, step: int) -> int:
    """Return 64 bits that name one draw."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}/{step}".encode()).digest()[:8], "little")


def generator(seed: int, stream: str, step: int) -> np.random.Generator:
    """Return NumPy's counter-based generator of one draw."""
    return np.random.Generator(np.random.Philox(key=key_of(seed, stream, step)))


def noise_ids(seed: int, step: int, *, shape: tuple[int, ...], bound: int) -> mx.array:
    """Return uniform ids in [1, bound): the placeholders that a block drafter's noise rows hold, int32."""
    return mx.random.randint(1, bound, shape, dtype=mx.int32, key=mx.random.key(key_of(seed, "noise", step)))
