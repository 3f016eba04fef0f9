"""Token windows with the teacher's distributions, and adapters that do something, for tests of training."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from draftledger.drafters.base import Adapter
from draftledger.drafters.block_lora import gated, initial_weights
from draftledger.teacher.topk import encode
from draftledger.training.data import Windows
from targets import VOCABULARY

MODULES = ["q_proj", "v_proj", "up_proj", "down_proj"]


def tokens(count: int, length: int, key: int = 0) -> np.ndarray:
    """Random windows [count, length] int32."""
    return np.random.default_rng(key).integers(VOCABULARY, size=(count, length), dtype=np.int32)


def windows(model: nn.Module, *, count: int = 4, length: int = 12, k: int = 8, key: int = 0) -> Windows:
    """Random windows and the target's own top-k at their positions."""
    drawn = tokens(count, length, key)
    return Windows(drawn, encode(np.array(model(mx.array(drawn))), k))


def noisy_weights(model: nn.Module, *, spread: float = 0.2) -> dict[str, mx.array]:
    """Adapter weights whose update is far from zero."""
    weights = initial_weights(model, modules=MODULES, rank=4, key=mx.random.key(1))
    keys = mx.random.split(mx.random.key(2), len(weights))
    return {
        name: spread * mx.random.normal(value.shape, key=key)
        for (name, value), key in zip(weights.items(), keys, strict=True)
    }


def noisy_adapter(model: nn.Module) -> Adapter:
    """The same as a drafter's adapter."""
    return Adapter(gated(model, noisy_weights(model), scale=1.0, first=1), {"scale": 1.0})
