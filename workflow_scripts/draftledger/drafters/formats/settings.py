"""Where each setting of a drafter stands in a config.json, in the order in which places are asked."""

from collections.abc import Iterable, Mapping
from typing import Any

Config = Mapping[str, Any]
Paths = tuple[str, ...]

# z-lab's two generations: everything under `dflash_config`, or the older flat files. The drafter's `rope_theta` may be
# nested; a target's layout by kind of layer (Gemma 4) is asked for its full attention.
BACKBONE: Mapping[str, Paths] = {
    "hidden_size": ("hidden_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "rms_norm_eps": ("rms_norm_eps",),
    "max_position_embeddings": ("max_position_embeddings",),
    "rope_theta": ("rope_theta", "rope_parameters.rope_theta", "rope_parameters.full_attention.rope_theta"),
    "layer_types": ("layer_types",),
    "sliding_window": ("dflash_config.swa_window_size", "sliding_window"),
}
BLOCK: Mapping[str, Paths] = {
    "block_size": ("dflash_config.block_size", "block_size"),
    "target_layer_ids": ("dflash_config.target_layer_ids", "target_layer_ids", "aux_hidden_state_layer_ids"),
    "mask_token_id": ("dflash_config.mask_token_id", "mask_token_id"),
    "num_target_layers": ("num_target_layers", "dflash_config.num_target_layers"),
    "is_causal": ("is_causal", "dflash_config.causal", "dflash_query_causal"),
    "final_logit_softcapping": ("dflash_config.final_logit_softcapping", "final_logit_softcapping"),
    "input_embedding_scale": ("dflash_config.input_embedding_scale",),
    "output_multiplier": ("dflash_config.output_multiplier", "output_multiplier"),
}
SELECTOR: Mapping[str, Paths] = {
    name: (f"dflash_config.{name}", name)
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
}
HEADS: Mapping[str, Paths] = {
    name: (name, f"dflash_config.{name}")
    for name in ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov")
}
PLACES: Mapping[str, Mapping[str, Paths]] = {
    "dflash": {**BACKBONE, **BLOCK},
    "dflash2": {**BACKBONE, **BLOCK, **SELECTOR},
    "dspark": {**BACKBONE, **BLOCK, **HEADS, "draft_vocab_size": ("draft_vocab_size",)},
}
ROPE = ("rope_scaling", "rope_parameters")


def at(config: Config, path: str) -> Any:
    """Return the value at a dotted path, null when a step of it is absent."""
    value: Any = config
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def first(config: Config, paths: Iterable[str]) -> Any:
    """Return the first value that is there, null when none is."""
    return next((value for path in paths if (value := at(config, path)) is not None), None)


def gathered(config: Config, kind: str, *, inside: str | None = None) -> dict[str, Any]:
    """Return every setting of a kind that is there; those under `inside` count before those at the top."""
    places = {name: (*(f"{inside}.{path}" for path in paths if inside), *paths) for name, paths in PLACES[kind].items()}
    found = {name: first(config, paths) for name, paths in places.items()}
    return {name: value for name, value in found.items() if value is not None}


def scaling(config: Config) -> dict[str, Any] | None:
    """Return the rope scaling that a config asks for (such as yarn), null for plain rope."""
    for name in ROPE:
        value = config.get(name)
        if isinstance(value, Mapping) and value.get("rope_type", value.get("type", "default")) != "default":
            return {key: item for key, item in value.items() if key != "rope_theta"}
    return None
