"""Release A's training settings in its own words, and the digest that its checkpoints were published under."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP = {"gate_proj", "up_proj", "down_proj"}
DELTANET = {"in_proj_qkv", "out_proj"}
GATES = {"in_proj_z", "in_proj_b", "in_proj_a"}


def run_settings(
    config: Mapping[str, Any],
    drafter: str,
    *,
    block_size: int,
    curriculum: Sequence[int] = (),
    noise_align_width: int | None = None,
) -> dict[str, Any]:
    """Return one of release A's runs, as it named its settings, from our configuration of a block LoRA.

    `block_size` is its K, which counts the anchor row: our k + 1. What it could not vary by then stands here.
    """
    spec = config["drafters"][drafter]
    modules, usual_alpha = set(spec["modules"]), spec["scale"] == 16
    settings = {
        "batch_size": spec["batch"],
        "block_curriculum": list(curriculum),
        "block_size": block_size,
        "ce_target": "data",
        "ce_weight": 0.0,
        "corruption": spec.get("corruption", "full"),
        "grad_clip": float(spec["clip"]),
        "kl_weight": float(spec["loss"] == "kl"),
        "learning_rate": float(spec["learning_rate"]),
        "lora_alpha": None if usual_alpha else spec["scale"] * spec["rank"],
        "lora_deltanet": modules >= DELTANET,
        "lora_deltanet_gates": modules >= GATES,
        "lora_dropout": 0.0,
        "lora_full_attention": modules >= ATTENTION,
        "lora_mlp": modules >= MLP,
        "lora_rank": spec["rank"],
        "noise_mode": "random_uniform",
        "seed": config["seeds"][0],
        "shuffle_targets": spec["teacher"] == "shuffled",
        "tv_weight": float(spec["loss"] == "tv"),
        "warmup_steps": spec["warmup"],
        "weight_decay": 0.0,
        "window": config["windows"]["length"],
    }
    return settings if noise_align_width is None else {**settings, "noise_align_width": noise_align_width}


def config_hash(settings: Mapping[str, Any]) -> str:
    """Return the sha256 under which release A published a run: sorted JSON with Python's own spaces."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True, default=str).encode()).hexdigest()
