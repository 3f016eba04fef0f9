"""What packagings mean by their settings: which are the drafter's own, and which are copies of the target's."""

from typing import Any

from draftledger.drafters.formats.settings import Config, at, scaling
from draftledger.errors import UnsupportedError

INNER = "transformer_layer_config"
Settings = dict[str, Any]


def real_scaling(config: Config, settings: Settings) -> Settings:
    """The rope scaling is the drafter's own; elsewhere it is a copy of the target's."""
    found = scaling(config.get(INNER, config))
    return settings if found is None else {**settings, "rope_scaling": found}


def all_full(config: Config, settings: Settings) -> Settings:
    """DeepSpec trains full bidirectional layers only: kinds of layer and window are the target's."""
    return {key: value for key, value in settings.items() if key not in ("layer_types", "sliding_window", "is_causal")}


def nested_causality(config: Config, settings: Settings) -> Settings:
    """Speculators: sliding layers count when switched on; they are causal unless `sliding_window_non_causal`."""
    layer = config[INNER]
    if not ("sliding_attention" in layer.get("layer_types", ()) and layer.get("use_sliding_window")):
        return all_full(config, settings)
    kept = {key: value for key, value in settings.items() if key != "is_causal"}
    return {**kept, "is_causal": False} if config.get("sliding_window_non_causal") else kept


def declared_row(config: Config, settings: Settings) -> Settings:
    """Speculators: the first row that predicts is what the declared number of proposals leaves of the block."""
    return {**settings, "first_row": _first_row(config, settings)}


def second_row(config: Config, settings: Settings) -> Settings:
    """A DFlash drafter's anchor row never predicts; raise UnsupportedError for one that was trained otherwise."""
    if _first_row(config, settings) == 0:
        raise UnsupportedError("a DFlash drafter whose anchor row predicts; only DSpark's may")
    return settings


def _first_row(config: Config, settings: Settings) -> int:
    methods = at(config, "speculators_config.proposal_methods") or [{}]
    rows = settings["block_size"] - methods[0].get("speculative_tokens", -1)
    return rows if 0 <= rows <= 1 else 0 if config.get("sample_from_anchor") else 1


def whole_vocabulary(config: Config, settings: Settings) -> Settings:
    """A draft vocabulary as large as the target's is none."""
    if settings.get("draft_vocab_size") != settings.get("vocab_size"):
        return settings
    return {key: value for key, value in settings.items() if key != "draft_vocab_size"}


def gemma4_heads(config: Config, settings: Settings) -> Settings:
    """DeepSpec's Gemma 4 drafter has the geometry of that target's global layers."""
    heads = {"num_key_value_heads": config["num_global_key_value_heads"], "head_dim": config["global_head_dim"]}
    return {**settings, **heads, "partial_rotary_factor": 0.25}


def real_partial_rotary(config: Config, settings: Settings) -> Settings:
    """Qwen3.5-native heads rotate only a part of each head; elsewhere the field is a copy of the target's."""
    share = at(config, "rope_parameters.partial_rotary_factor") or config.get("partial_rotary_factor")
    return settings if share is None else {**settings, "partial_rotary_factor": share}


def interleaved_rope(config: Config, settings: Settings) -> Settings:
    """LiquidAI says with `rope_is_neox_style: false` that neighbouring values are rotated together."""
    return {**settings, "rope_traditional": config.get("rope_is_neox_style") is False}
