"""The layout of vLLM's speculators, for every kind of block drafter."""

from typing import Any

from draftledger.drafters.formats.deepspec import HEADS
from draftledger.drafters.formats.shapes import Settings
from draftledger.drafters.formats.zlab import SELECTOR, backbone
from draftledger.errors import UnsupportedError

ARCHITECTURES = {"dflash": "DFlashDraftModel", "dflash2": "DFlash2DraftModel", "dspark": "DSparkDraftModel"}
EXTRA = {"dflash": (), "dflash2": SELECTOR, "dspark": HEADS}
VERSION = "0.5.0"


def speculators(kind: str, settings: Settings, *, verifier: str = "") -> dict[str, Any]:
    """Return the speculators config.json of a drafter for the target `verifier`, a name or path.

    Raises UnsupportedError for a block that is causal in full layers too, which the layout cannot say.
    """
    if settings.get("is_causal"):
        raise UnsupportedError("export: speculators has no place for full layers with a causal block")
    proposals, cap = settings["block_size"] - settings.get("first_row", 1), settings.get("final_logit_softcapping")
    return {
        "architectures": [ARCHITECTURES[kind]],
        "speculators_model_type": kind,
        "speculators_version": VERSION,
        "speculators_config": _method(kind, proposals, verifier),
        "transformer_layer_config": {**backbone(settings), "rope_parameters": _rope(settings)},
        "block_size": settings["block_size"],
        "aux_hidden_state_layer_ids": list(settings["target_layer_ids"]),
        "num_target_layers": settings["num_target_layers"],
        "mask_token_id": settings["mask_token_id"],
        "draft_vocab_size": settings.get("draft_vocab_size") or settings["vocab_size"],
        "sliding_window_non_causal": settings.get("is_causal") is False,
        "sample_from_anchor": proposals == settings["block_size"],
        **({} if cap is None else {"final_logit_softcapping": cap}),
        **{name: settings[name] for name in EXTRA[kind]},
    }


def _rope(settings: Settings) -> dict[str, Any]:
    """Return the rope as newer readers want it; mlx-dspark asks for its base nowhere else and assumes a million."""
    return {"rope_type": "default", **(settings.get("rope_scaling") or {}), "rope_theta": settings["rope_theta"]}


def _method(kind: str, proposals: int, verifier: str) -> dict[str, Any]:
    method = {"proposal_type": "greedy", "speculative_tokens": proposals, "verifier_accept_k": 1}
    return {
        "algorithm": kind,
        "default_proposal_method": "greedy",
        "proposal_methods": [{**method, "accept_tolerance": 0.0}],
        "verifier": {"name_or_path": verifier, "architectures": []},
    }
