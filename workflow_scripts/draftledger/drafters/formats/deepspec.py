"""DeepSpec's layout: what DSpark drafters are published in; full layers, and the anchor's row predicts."""

from typing import Any

from draftledger.drafters.formats.shapes import Settings
from draftledger.drafters.formats.zlab import backbone
from draftledger.errors import UnsupportedError

HEADS = ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov")


def deepspec(kind: str, settings: Settings) -> dict[str, Any]:
    """Return DeepSpec's config.json of a DSpark drafter; raise UnsupportedError for what it has no place for."""
    if kind != "dspark":
        raise UnsupportedError(f"export: DeepSpec's layout is for DSpark, not {kind}; write it as zlab or speculators")
    if reason := _beyond(settings):
        raise UnsupportedError(f"export: DeepSpec's layout has no place for {reason}; write it as speculators")
    cap = settings.get("final_logit_softcapping")
    return {
        "architectures": ["Qwen3DSparkModel"],
        **backbone(settings),
        **({} if cap is None else {"final_logit_softcapping": cap}),
        "block_size": settings["block_size"],
        "mask_token_id": settings["mask_token_id"],
        "target_layer_ids": list(settings["target_layer_ids"]),
        "num_target_layers": settings["num_target_layers"],
        "num_anchors": 512,
        **{name: settings[name] for name in HEADS},
    }


def _beyond(settings: Settings) -> str | None:
    """Return what a drafter has that the layout cannot say, or null."""
    checks = {
        "a first row of 1": settings.get("first_row"),
        "sliding layers": "sliding_attention" in (settings.get("layer_types") or ()),
        "a causal block": settings.get("is_causal"),
        "rope scaling": settings.get("rope_scaling"),
        "a reduced draft vocabulary": settings.get("draft_vocab_size"),
    }
    return next((name for name, there in checks.items() if there), None)
