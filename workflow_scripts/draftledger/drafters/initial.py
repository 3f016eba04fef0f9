"""A block drafter before training: its shape from a few numbers, its weights from one key."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.arrays import leaves
from draftledger.drafters.base import Adapter
from draftledger.drafters.block_adapter import adapter
from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.layer_mask import FAMILIES, layer_types
from draftledger.drafters.target_ends import TargetEnds, ends_of
from draftledger.errors import ConfigError

ROPE_THETA, CONTEXT, EPS = 1e6, 40960, 1e-6
# A quieter head starts training lower than the target's own norm does: first loss 12 instead of 20 (measured).
FINAL_NORM = 0.3
# What starts at zero changes nothing at first, and its partner's gradient is not zero.
ZERO = ("kernel_projection.weight", "successor_codebook", "markov_w2.weight", "confidence_head.proj.weight", ".bias")
SELECTOR = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
HEADS = ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov")


def uniform_taps(count: int, layers: int) -> tuple[int, ...]:
    """Return `count` target layers as published drafters tap them: evenly from the second to the third last.

    A target too shallow for that is tapped evenly over all its layers; raises ConfigError where they do not suffice.
    """
    if count > layers:
        raise ConfigError(f"drafters.taps: {count} taps, but the target has {layers} layers; use fewer")
    if count == 1:
        return (layers // 2,)
    first, last = (1, layers - 3) if layers - 3 >= count else (0, layers - 1)
    return tuple(round(first + place * (last - first) / (count - 1)) for place in range(count))


def config_of(kind: str, shape: Mapping[str, Any], ends: TargetEnds) -> DFlashConfig:
    """Return the settings of a drafter of a kind and shape for a target; raise ConfigError for what cannot be.

    `shape` holds layers, heads, inner, block, taps (how many, or which), attention (a family of masks) and mask_id;
    window where layers slide, kv_heads and head_dim where they are not the heads and their share of the hidden size,
    and DFlash 2's and DSpark's own settings by their names.
    """
    taps, heads = shape["taps"], shape["heads"]
    settings: dict[str, Any] = {
        "hidden_size": ends.hidden,
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": shape.get("kv_heads", heads),
        "head_dim": shape.get("head_dim", ends.hidden // heads),
        "intermediate_size": shape["inner"],
        "vocab_size": ends.vocabulary,
        "rms_norm_eps": EPS,
        "rope_theta": ROPE_THETA,
        "max_position_embeddings": CONTEXT,
        "block_size": shape["block"],
        "target_layer_ids": uniform_taps(taps, ends.layers) if isinstance(taps, int) else tuple(taps),
        "num_target_layers": ends.layers,
        "mask_token_id": shape["mask_id"],
        "layer_types": layer_types(shape["attention"], shape["layers"]),
        "sliding_window": shape.get("window"),
        "is_causal": FAMILIES[shape["attention"]][1],
    }
    if kind == "dspark":
        return DSparkConfig(**settings, **{name: shape[name] for name in HEADS if name in shape})
    return DFlashConfig(**settings, **{name: shape[name] for name in SELECTOR if name in shape})


def initial(spec: Mapping[str, Any], *, model: nn.Module, key: mx.array) -> tuple[DFlashConfig, dict[str, mx.array]]:
    """Return a fresh drafter's settings and float32 weights by name: matrices uniform in ±1/√inputs, norms one.

    `spec` is its entry of the configuration: kind and shape.
    The final norm is FINAL_NORM times the target's, convolutions pass their input on, and every head adds nothing.
    """
    ends = ends_of(model)
    config = config_of(spec["kind"], spec["shape"], ends)
    shapes = {name: array.shape for name, array in leaves(DFlashDraftModel(config).parameters()).items()}
    keys = mx.random.split(key, len(shapes))
    weights = {name: _fresh(name, shapes[name], part) for name, part in zip(sorted(shapes), keys, strict=True)}
    weights["norm.weight"] = FINAL_NORM * (
        weights["norm.weight"] if ends.norm is None else ends.norm.astype(mx.float32)
    )
    return config, weights


def _fresh(name: str, shape: tuple[int, ...], key: mx.array) -> mx.array:
    if name.endswith("norm.weight"):
        return mx.ones(shape)
    if name.endswith("base_kernel"):
        return mx.zeros(shape).at[:, 0].add(1)
    if name.endswith(ZERO):
        return mx.zeros(shape)
    bound = shape[-1] ** -0.5
    return mx.random.uniform(-bound, bound, shape, key=key)


def untrained(spec: Mapping[str, Any], *, model: nn.Module) -> Adapter:
    """Return the drafter that training starts from, of one fixed key."""
    config, weights = initial(spec, model=model, key=mx.random.key(0))
    return adapter(config, weights, spec=spec, model=model, where="untrained drafter")
