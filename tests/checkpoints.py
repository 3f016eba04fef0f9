"""Small published drafters of every packaging, as their publishers lay them out: a config.json and random tensors."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from draftledger.drafters.formats.shapes import expected
from draftledger.rng import key_of

HIDDEN, VOCABULARY, LAYERS, INNER, TAPS = 32, 96, 2, 48, (0, 2)
Tensors = dict[str, mx.array]


def backbone(**changes: Any) -> dict[str, Any]:
    """Return a Qwen3 config of two layers; the heads are wider together than the hidden size, as in real ones."""
    return {
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": INNER,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        **changes,
    }


def nested(**changes: Any) -> dict[str, Any]:
    """Return a `dflash_config` block."""
    return {"mask_token_id": 3, "target_layer_ids": list(TAPS), **changes}


MARKOV = {"markov_rank": 4, "markov_head_type": "vanilla"}
CONFIDENT = {"enable_confidence_head": True, "confidence_head_with_markov": True}
TAPPED = {"mask_token_id": 3, "target_layer_ids": list(TAPS), "num_target_layers": 4}
# What DeepSpec copies from a Qwen3.5 target's config and no drafter means.
NOISE = {
    "partial_rotary_factor": 0.25,
    "attn_output_gate": True,
    "linear_num_key_heads": 16,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "rope_parameters": {"rope_theta": 1e7, "rope_type": "yarn", "factor": 32.0, "partial_rotary_factor": 0.25},
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e7,
    "factor": 32.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}


def without(config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a config without some keys."""
    return {key: value for key, value in config.items() if key not in names}


def speculators(kind: str, **changes: Any) -> dict[str, Any]:
    """Return a vLLM speculators config."""
    return {
        "architectures": ["DSparkDraftModel" if kind == "dspark" else "DFlashDraftModel"],
        "speculators_model_type": kind,
        "speculators_config": {"algorithm": kind, "proposal_methods": [{"speculative_tokens": 6}]},
        "transformer_layer_config": backbone(),
        "block_size": 7,
        "mask_token_id": 3,
        "draft_vocab_size": VOCABULARY,
        "aux_hidden_state_layer_ids": list(TAPS),
        **changes,
    }


@dataclass(frozen=True, slots=True)
class Fixture:
    """One published drafter: config.json, the packaging it is told as, and what reading it must find.

    `own` are the settings whose tensors the file has; `edit` makes a publisher's names out of internal ones.
    """

    config: dict[str, Any]
    name: str
    kind: str
    means: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    edit: Callable[[Tensors], Tensors] = dict

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the tensors."""
        base = {**backbone(), "target_layer_ids": TAPS, **(MARKOV | CONFIDENT if self.kind == "dspark" else {})}
        return {**base, **self.means}

    def tensors(self) -> Tensors:
        """Return random bfloat16 tensors by internal name."""
        shapes = expected(self.kind, self.settings())
        return {name: _drawn(name, shape) for name, shape in shapes.items() if name not in self.absent}

    def write(self, folder: Path, *, tensors: Tensors | None = None, shards: int = 1) -> Path:
        """Write the checkpoint folder, in shards with an index when asked for, and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        save(folder, self.edit(self.tensors()) if tensors is None else tensors, shards=shards)
        return folder


def same(one: dict, two: dict) -> bool:
    """Equal names, dtypes and bits."""
    if one.keys() != two.keys() or any(one[name].dtype != two[name].dtype for name in one):
        return False
    return all(mx.array_equal(one[name], two[name], equal_nan=True).item() for name in one)


def changed(fixture, **config):
    """A fixture's config.json with some keys changed, or, with null, left out."""
    return {key: value for key, value in {**fixture.config, **config}.items() if value is not None}


def save(folder: Path, tensors: Tensors, *, shards: int = 1) -> None:
    """Write tensors as a publisher does: one file, or shards with their index."""
    if shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), tensors)
        return
    names = sorted(tensors)
    places = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        mx.save_safetensors(str(folder / file), {name: tensors[name] for name in names if places[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _drawn(name: str, shape: tuple[int, ...]) -> mx.array:
    key = mx.random.key(key_of(0, name, 0))
    if name == "d2t":
        return mx.arange(shape[0], dtype=mx.int64)
    if len(shape) == 1:
        return (1 + 0.1 * mx.random.normal(shape, key=key)).astype(mx.bfloat16)
    return (mx.random.normal(shape, key=key) * shape[-1] ** -0.5).astype(mx.bfloat16)


def _offset(tensors: Tensors) -> Tensors:
    return {
        n: (t.astype(mx.float32) - 1).astype(t.dtype) if n.endswith("norm.weight") else t for n, t in tensors.items()
    }


def _with_map(tensors: Tensors) -> Tensors:
    return {**tensors, "t2d": mx.arange(VOCABULARY) % 2 == 0}


def _nvidia(tensors: Tensors) -> Tensors:
    renamed = {name.replace("self_attn.sinks", "self_attn.attention_sink_bias"): t for name, t in tensors.items()}
    return {("model." if name == "embed_tokens.weight" else "") + name: t for name, t in renamed.items()}


SLIDING = ["sliding_attention"] * LAYERS
BORROWED = ("embed_tokens.weight", "lm_head.weight")
FIXTURES = {
    "z-lab, first generation": Fixture(
        {**backbone(), **TAPPED, "architectures": ["DFlashDraftModel"], "block_size": 8, "rope_scaling": None},
        "z-lab DFlash",
        "dflash",
        {"block_size": 8, "num_target_layers": 4},
    ),
    "z-lab, nested": Fixture(
        {
            **without(backbone(), "rope_theta"),
            "architectures": ["DFlashDraftModel"],
            "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"},
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 20,
            "num_target_layers": 5,
            "tie_word_embeddings": False,
            "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
            "dflash_config": nested(block_size=16),
        },
        "z-lab DFlash",
        "dflash",
        {"block_size": 16, "rope_theta": 1e7, "sliding_window": 20, "num_target_layers": 5},
    ),
    "z-lab DFlash 2": Fixture(
        {
            **backbone(),
            "architectures": ["DFlash2DraftModel"],
            "is_causal": False,
            "layer_types": SLIDING,
            "sliding_window": 20,
            "dflash_config": nested(
                block_size=8, conv_kernel_size=2, conv_group_size=16, selector_rank=4, selector_top_k=5
            ),
        },
        "z-lab DFlash 2",
        "dflash2",
        {
            "block_size": 8,
            "is_causal": False,
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 4,
            "selector_top_k": 5,
        },
    ),
    "DeepSpec": Fixture(
        {**backbone(), **TAPPED, **MARKOV, **CONFIDENT, "architectures": ["Qwen3DSparkModel"], "block_size": 7},
        "DeepSpec DSpark",
        "dspark",
        {"first_row": 0, "block_size": 7},
    ),
    "DeepSpec, noise of its target": Fixture(
        {
            **without(backbone(), "rope_theta"),
            **TAPPED,
            **MARKOV,
            **CONFIDENT,
            **NOISE,
            "architectures": ["Qwen3DSparkModel"],
            "model_type": "qwen3_5_text",
            "block_size": 15,
        },
        "DeepSpec DSpark",
        "dspark",
        {"first_row": 0, "block_size": 15, "rope_theta": 1e7},
    ),
    "DeepSpec, gated Markov head": Fixture(
        {
            **backbone(),
            **TAPPED,
            **MARKOV,
            "markov_head_type": "gated",
            "architectures": ["Qwen3DSparkModel"],
            "block_size": 7,
        },
        "DeepSpec DSpark",
        "dspark",
        {"markov_head_type": "gated", "enable_confidence_head": False},
    ),
    "DeepSpec, recurrent Markov head": Fixture(
        {
            **backbone(),
            **TAPPED,
            **MARKOV,
            **CONFIDENT,
            "markov_head_type": "rnn",
            "architectures": ["Qwen3DSparkModel"],
            "block_size": 7,
        },
        "DeepSpec DSpark",
        "dspark",
        {"markov_head_type": "rnn"},
    ),
    "DeepSpec, Gemma 4": Fixture(
        {
            **without(backbone(), "rope_theta"),
            **TAPPED,
            **MARKOV,
            **CONFIDENT,
            "architectures": ["Gemma4DSparkModel"],
            "model_type": "gemma4_text",
            "block_size": 7,
            "head_dim": 8,
            "global_head_dim": 16,
            "num_global_key_value_heads": 1,
            "final_logit_softcapping": 30.0,
            "layer_types": [*SLIDING, "full_attention"],
            "sliding_window": 20,
            "rope_parameters": {
                "full_attention": {"rope_theta": 1e6, "partial_rotary_factor": 0.25, "rope_type": "proportional"},
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
            },
        },
        "DeepSpec DSpark for Gemma 4",
        "dspark",
        {
            "family": "gemma4",
            "num_key_value_heads": 1,
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
            "final_logit_softcapping": 30.0,
        },
    ),
    "speculators, reduced vocabulary": Fixture(
        speculators("dspark", **MARKOV, **CONFIDENT, draft_vocab_size=40),
        "speculators DSpark",
        "dspark",
        {"first_row": 1, "draft_vocab_size": 40, "block_size": 7},
        ("embed_tokens.weight",),
        _with_map,
    ),
    "speculators, Muse": Fixture(
        speculators(
            "dspark",
            **MARKOV,
            **CONFIDENT,
            speculators_config={"algorithm": "dspark", "proposal_methods": [{"speculative_tokens": 15}]},
            block_size=15,
            sliding_window_non_causal=False,
            transformer_layer_config=backbone(layer_types=SLIDING, use_sliding_window=True, sliding_window=2048),
        ),
        "speculators DSpark",
        "dspark",
        {"first_row": 0, "block_size": 15, "sliding_window": 2048},
        BORROWED,
    ),
    "speculators DFlash": Fixture(
        speculators("dflash"),
        "speculators DFlash",
        "dflash",
        {"block_size": 7},
    ),
    "SpecForge": Fixture(
        {
            **without(backbone(), "rope_theta"),
            **MARKOV,
            "architectures": ["DSparkDraftModel"],
            "block_size": 7,
            "num_target_layers": 4,
            "rope_parameters": YARN,
            "dflash_config": nested(projector_type="dspark", **MARKOV, **CONFIDENT),
        },
        "SpecForge DSpark",
        "dspark",
        {"first_row": 0, "rope_theta": 1e7, "rope_scaling": without(YARN, "rope_theta")},
        BORROWED,
    ),
    "LiquidAI": Fixture(
        {
            **backbone(),
            **MARKOV,
            "enable_confidence_head": True,
            "architectures": ["Lfm2DSparkDraftModel"],
            "block_size": 9,
            "rope_is_neox_style": False,
            "dflash_config": nested(num_target_layers=4),
        },
        "LiquidAI DSpark",
        "dspark",
        {"first_row": 0, "block_size": 9, "rope_traditional": True, "confidence_head_with_markov": False},
        BORROWED,
    ),
    "Qwen3.5-native": Fixture(
        {
            **without(backbone(), "rope_theta"),
            **TAPPED,
            **MARKOV,
            **CONFIDENT,
            **NOISE,
            "architectures": ["Qwen35DSparkModel"],
            "model_type": "qwen3_5",
            "enable_qwen35_gated_q_proj": True,
            "block_size": 7,
        },
        "Qwen3.5-native DSpark",
        "dspark",
        {"first_row": 0, "gated_query": True, "partial_rotary_factor": 0.25, "rope_theta": 1e7},
        edit=_offset,
    ),
    "NVIDIA": Fixture(
        {
            **backbone(),
            **MARKOV,
            "architectures": ["Qwen3DSparkModel"],
            "block_size": 8,
            "dflash_query_causal": True,
            "layer_types": SLIDING,
            "sliding_window": 20,
            "has_lm_head": False,
            "dflash_config": nested(
                attention_sink_bias=True, causal=True, swa_window_size=20, sample_from_anchor=False
            ),
        },
        "NVIDIA DSpark",
        "dspark",
        {
            "first_row": 1,
            "is_causal": True,
            "attention_sinks": True,
            "sliding_window": 20,
            "enable_confidence_head": False,
        },
        ("lm_head.weight",),
        _nvidia,
    ),
}
