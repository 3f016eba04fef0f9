"""The settings of block drafters: DFlash and DFlash 2, and DSpark with its heads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from draftledger.errors import ConfigError

FULL, SLIDING = "full_attention", "sliding_attention"
MARKOV_HEADS = ("vanilla", "gated", "rnn")


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashConfig:
    """A DFlash drafter; with `selector_rank` it is DFlash 2.

    `target_layer_ids` are the tapped layers' indices from 0. `layer_types` null means full attention throughout.
    `is_causal` null means that sliding layers are causal inside the block and full ones are not.
    `input_embedding_scale` comes on top of the target's own. Raises ConfigError for what cannot be.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    block_size: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    mask_token_id: int = 0
    rope_scaling: dict[str, Any] | None = None
    layer_types: tuple[str, ...] | None = None
    sliding_window: int | None = None
    is_causal: bool | None = None
    final_logit_softcapping: float | None = None
    input_embedding_scale: float | None = None
    output_multiplier: float = 1.0
    conv_kernel_size: int | None = None
    conv_group_size: int | None = None
    selector_rank: int | None = None
    selector_top_k: int | None = None

    def __post_init__(self) -> None:
        for fault in self.faults():
            raise ConfigError(f"drafter config: {fault}")

    @property
    def kind(self) -> str:
        """Return the kind of drafter, as a config names it."""
        return "dflash2" if self.selector_rank else "dflash"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return each layer's kind of attention."""
        return self.layer_types or (FULL,) * self.num_hidden_layers

    @property
    def first_predicting(self) -> int:
        """Return the first block row that predicts: 1, since DFlash never reads the anchor's own."""
        return 1

    @property
    def proposals(self) -> int:
        """Return how many tokens a whole block proposes."""
        return self.block_size - self.first_predicting

    def faults(self) -> Iterator[str]:
        """Yield what is wrong, one line each."""
        sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
        for name in (*sizes, "intermediate_size", "vocab_size"):
            if getattr(self, name) < 1:
                yield f"{name} is {getattr(self, name)}; it must be at least 1"
        window, group = self.sliding_window or 0, self.conv_group_size or 1
        parts = (self.conv_kernel_size, self.conv_group_size, self.selector_rank, self.selector_top_k)
        rules = (
            (self.num_attention_heads % self.num_key_value_heads, "num_key_value_heads does not divide the heads"),
            (self.proposals < 1, f"block_size {self.block_size} leaves nothing to propose"),
            (len(self.kinds) != self.num_hidden_layers, f"{len(self.kinds)} layer_types, not one a layer"),
            (set(self.kinds) - {FULL, SLIDING}, f"layer_types may be {FULL} or {SLIDING}"),
            (SLIDING in self.kinds and window < self.block_size, f"sliding_window {window} is shorter than a block"),
            (not self.target_layer_ids or min(self.target_layer_ids) < 0, "target_layer_ids must name layers, from 0"),
            (not 0 <= self.mask_token_id < self.vocab_size, f"mask_token_id {self.mask_token_id} has no embedding"),
            (
                any(parts) and not all(parts),
                "DFlash 2 needs conv_kernel_size, conv_group_size, selector_rank and top_k",
            ),
            (self.hidden_size % group, f"conv_group_size {group} does not divide hidden_size {self.hidden_size}"),
        )
        yield from (told for broken, told in rules if broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class DSparkConfig(DFlashConfig):
    """A DSpark drafter: DFlash's backbone with a Markov and a confidence head.

    `first_row` is the first block row that predicts: 0 the anchor's own, 1 the first mask's. `draft_vocab_size` null
    means the target's vocabulary. `family` gemma4 has its layers' norms, and values made from keys; `gated_query`,
    `attention_sinks`, `rope_traditional` and `partial_rotary_factor` are those of single publishers' layers.
    """

    markov_rank: int = 0
    markov_head_type: str = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False
    first_row: int = 0
    draft_vocab_size: int | None = None
    family: str = "qwen3"
    gated_query: bool = False
    attention_sinks: bool = False
    rope_traditional: bool = False
    partial_rotary_factor: float = 1.0

    @property
    def kind(self) -> str:
        """Return the kind of drafter, as a config names it."""
        return "dspark"

    @property
    def first_predicting(self) -> int:
        """Return the first block row that predicts."""
        return self.first_row

    def faults(self) -> Iterator[str]:
        """Yield what is wrong, one line each."""
        yield from DFlashConfig.faults(self)
        with_markov = self.enable_confidence_head and self.confidence_head_with_markov
        rules = (
            (self.first_row not in (0, 1), f"first_row is {self.first_row}; it may be 0 or 1"),
            (self.markov_head_type not in MARKOV_HEADS, f"markov_head_type may be {', '.join(MARKOV_HEADS)}"),
            (with_markov and not self.markov_rank, "confidence_head_with_markov needs a Markov head"),
            (self.family not in ("qwen3", "gemma4"), f"family {self.family!r}; it may be qwen3 or gemma4"),
            (not 0 < self.partial_rotary_factor <= 1, "partial_rotary_factor must lie above 0 and not above 1"),
        )
        yield from (told for broken, told in rules if broken)
