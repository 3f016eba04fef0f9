"""How many tensors and parameters a target and its block LoRA have: from the configuration, without weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.arrays import leaves
from draftledger.drafters.block_lora import initial_weights
from draftledger.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Counts:
    """Tensors, and the numbers in them."""

    tensors: int
    parameters: int


def skeleton(config: Mapping[str, Any]) -> nn.Module:
    """Return mlx-lm's module of a config.json, its weights never computed; UnsupportedError for an unknown one."""
    kind = str(config.get("model_type", "")).replace("-", "_")
    try:
        module = import_module(f"mlx_lm.models.{kind}")
        return module.Model(module.ModelArgs.from_dict(dict(config)))
    except (ImportError, TypeError, KeyError) as error:
        raise UnsupportedError(f"config.json: mlx-lm has no text model of type {kind}: {error}") from None


def count_target(config: Mapping[str, Any]) -> Counts:
    """Count a target's weights."""
    return _count(leaves(skeleton(config).parameters()))


def count_lora(config: Mapping[str, Any], *, modules: Sequence[str], rank: int) -> Counts:
    """Count the weights of a block LoRA of that rank on those linear layers of a target."""
    return _count(initial_weights(skeleton(config), modules=modules, rank=rank, key=mx.random.key(0)))


def _count(arrays: Mapping[str, mx.array]) -> Counts:
    return Counts(len(arrays), sum(array.size for array in arrays.values()))
