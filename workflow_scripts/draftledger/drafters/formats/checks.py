"""A drafter's settings made whole: what must be said, what follows from the rest, and the configuration they give."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig
from draftledger.errors import ConfigError, UnsupportedError

DrafterConfig = DFlashConfig | DSparkConfig
CLASSES: Mapping[str, type[DrafterConfig]] = {"dflash": DFlashConfig, "dflash2": DFlashConfig, "dspark": DSparkConfig}
TRANSFORMER_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)
SIZES = (*TRANSFORMER_SIZES, "block_size")
LARGEST_BLOCK = 64


def completed(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with what follows from others; raise UnsupportedError for a size that is none."""
    given = {"block_size": 16, **settings} if kind == "dflash" else dict(settings)
    for name in SIZES:
        if name in given and (not isinstance(given[name], int) or given[name] < 1):
            raise UnsupportedError(f"{name} is {given[name]!r}, not a size")
    derived = {
        "num_key_value_heads": given.get("num_attention_heads"),
        "head_dim": given.get("hidden_size", 0) // given.get("num_attention_heads", 1),
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 40960,
        "num_target_layers": max(given.get("target_layer_ids", ()), default=0) + 1,
    }
    return {**derived, **given}


def configured(kind: str, settings: Mapping[str, Any]) -> DrafterConfig:
    """Return the configuration of completed settings; raise UnsupportedError for what is absent, unknown or wrong."""
    known = {field.name: field for field in fields(CLASSES[kind])}
    if unknown := [name for name, value in settings.items() if name not in known and value]:
        raise UnsupportedError(f"its {unknown[0]} is not supported")
    needed = {name for name, field in known.items() if field.default is MISSING} | {"mask_token_id"}
    needed |= {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"} if kind == "dflash2" else set()
    if missing := sorted(needed - {name for name, value in settings.items() if value is not None}):
        raise UnsupportedError(f"config.json says no {missing[0]}; this is no whole {kind} drafter")
    taps, rows = list(settings["target_layer_ids"]), settings["block_size"]
    if len(set(taps)) < len(taps):
        raise UnsupportedError(f"target_layer_ids {taps} name a layer twice")
    if rows > LARGEST_BLOCK:
        raise UnsupportedError(f"block_size {rows} is above {LARGEST_BLOCK}")
    try:
        return CLASSES[kind](**{name: _frozen(value) for name, value in settings.items() if name in known})
    except ConfigError as error:
        raise UnsupportedError(str(error).removeprefix("drafter config: ")) from None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
