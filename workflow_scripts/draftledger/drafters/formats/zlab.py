"""z-lab's layout: what DFlash and DFlash 2 are published in, with both generations' places filled."""

from typing import Any

from draftledger.drafters.formats.checks import TRANSFORMER_SIZES
from draftledger.drafters.formats.shapes import Settings
from draftledger.errors import UnsupportedError

SELECTOR = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
BACKBONE = (*TRANSFORMER_SIZES, "rms_norm_eps", "max_position_embeddings", "rope_theta")


def backbone(settings: Settings) -> dict[str, Any]:
    """Return the transformer's settings as a Qwen3 config names them."""
    kinds = list(settings.get("layer_types") or ["full_attention"] * settings["num_hidden_layers"])
    return {
        "model_type": "qwen3",
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        **{name: settings[name] for name in BACKBONE},
        "rope_scaling": settings.get("rope_scaling"),
        "layer_types": kinds,
        "sliding_window": settings.get("sliding_window"),
        "use_sliding_window": "sliding_attention" in kinds,
        "max_window_layers": settings["num_hidden_layers"],
        "tie_word_embeddings": False,
    }


def zlab(kind: str, settings: Settings) -> dict[str, Any]:
    """Return z-lab's config.json of a DFlash or DFlash 2 drafter; raise UnsupportedError for another."""
    if kind not in ("dflash", "dflash2"):
        raise UnsupportedError(f"export: z-lab's layout is for DFlash, not {kind}; write it as deepspec or speculators")
    extra = {name: settings[name] for name in SELECTOR} if kind == "dflash2" else {}
    scaled = {name: settings[name] for name in ("input_embedding_scale", "output_multiplier") if _set(settings, name)}
    cap = settings.get("final_logit_softcapping")
    top = {"is_causal": settings.get("is_causal"), "final_logit_softcapping": cap}
    return {
        "architectures": ["DFlash2DraftModel" if kind == "dflash2" else "DFlashDraftModel"],
        **backbone(settings),
        **{name: value for name, value in top.items() if value is not None},
        "block_size": settings["block_size"],
        "num_target_layers": settings["num_target_layers"],
        "dflash_config": {
            "block_size": settings["block_size"],
            "mask_token_id": settings["mask_token_id"],
            "target_layer_ids": list(settings["target_layer_ids"]),
            **extra,
            **scaled,
        },
    }


def _set(settings: Settings, name: str) -> bool:
    return settings.get(name) not in (None, 1, 1.0)
