"""Small random block drafters of every family and kind, and a target of two ends only to bind them to."""

from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import llama

from draftledger.arrays import leaves
from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.layer_mask import FAMILIES, layer_types
from numpy_drafters import NumpyDrafter

HIDDEN, VOCABULARY, BLOCK, WINDOW, TAPS = 32, 96, 5, 8, (2, 0)
DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 4, "selector_top_k": 6}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}
HEADS = {"markov_rank": 4, "enable_confidence_head": True, "confidence_head_with_markov": True}
EXTRA: dict[str, dict[str, Any]] = {"dflash": {}, "dflash2": DFLASH2, "dspark": HEADS}


class Ends(nn.Module):
    """A target that has nothing between its embedding and its head."""

    def __init__(self, key: int = 5) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.layers: list[nn.Module] = []
        randomise(self, key)


@cache
def deep(window: int | None = None) -> nn.Module:
    """Return a target of four attention layers; with a window all but the last slide."""
    kinds = ["full_attention" if window is None else "sliding_attention"] * 3 + ["full_attention"]
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=HIDDEN,
            num_hidden_layers=4,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
            vocab_size=VOCABULARY,
            tie_word_embeddings=False,
            layer_types=kinds,
            sliding_window=window,
        )
    )
    model.eval()
    randomise(model, key=8)
    return model


def randomise(module: nn.Module, key: int) -> None:
    """Draw all weights of a module: norms about one, the others small but none of them idle."""
    arrays = leaves(module.parameters())
    keys = mx.random.split(mx.random.key(key), len(arrays))
    drawn = [
        (name, _drawn(name, array, part)) for (name, array), part in zip(sorted(arrays.items()), keys, strict=True)
    ]
    module.load_weights(drawn)


def _drawn(name: str, array: mx.array, key: mx.array) -> mx.array:
    if name == "d2t":
        return mx.arange(array.size) * 2 % 5
    if name.endswith("norm.weight"):
        return mx.random.uniform(0.5, 1.5, array.shape, key=key)
    return mx.random.normal(array.shape, key=key) * (0.3 if array.ndim < 2 else 1.5 * array.shape[-1] ** -0.5)


def settings(kind: str, attention: str = "full", **changes: Any) -> DFlashConfig:
    """Return the settings of a drafter of two layers, `attention` one of the families of masks."""
    shape: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 48,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "block_size": BLOCK,
        "target_layer_ids": TAPS,
        "num_target_layers": 4,
        "mask_token_id": 3,
        "layer_types": layer_types(attention, 2),
        "sliding_window": WINDOW,
        "is_causal": FAMILIES[attention][1],
        **EXTRA[kind],
        **changes,
    }
    return (DSparkConfig if kind == "dspark" else DFlashConfig)(**shape)


def drafter(config: DFlashConfig, *, own: tuple[str, ...] = (), key: int = 1) -> tuple[DFlashDraftModel, NumpyDrafter]:
    """Return a random drafter and its reference, bound to the same ends."""
    ends, model = Ends(), DFlashDraftModel(config, own=own)
    randomise(model, key)
    tensors = leaves(model.parameters())
    reference = NumpyDrafter(config, tensors, table=ends.embed_tokens.weight, head=ends.lm_head.weight)
    return model.bind(ends), reference


def taps(rows: int, key: int = 7) -> mx.array:
    """Return random taps [rows, T·H]."""
    return mx.random.normal((rows, len(TAPS) * HIDDEN), key=mx.random.key(key))


def block(config: DFlashConfig, anchor: int = 11) -> list[int]:
    """Return a block's input ids."""
    return [anchor] + [config.mask_token_id] * (config.block_size - 1)
