"""Which keys a block row sees: two numbers a layer say it for all four families of published drafters."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from draftledger.drafters.dflash_config import FULL, SLIDING, DFlashConfig

# Layer kinds and `is_causal` of the families, for drafters whose shape is named by one word.
FAMILIES: dict[str, tuple[str, bool | None]] = {
    "full": ("full", None),
    "hybrid": ("hybrid", None),
    "sliding": ("sliding", False),
    "causal_sliding": ("sliding", None),
}


@dataclass(frozen=True, slots=True)
class LayerMask:
    """A query at position p sees context position j iff p - j < `window`; null sees all of it.

    Inside the block it sees every row, or with `causal` only rows up to its own.
    """

    window: int | None
    causal: bool

    @property
    def stored(self) -> int | None:
        """Return how many context rows a later query can still see; null means all."""
        return None if self.window is None else self.window - 1

    def build(self, block: int, context: int) -> mx.array | str | None:
        """Return the mask of `block` rows over `context` stored rows and the block: [block, context + block] bool.

        Null where every key is seen, "causal" where only the block's own order hides any.
        """
        if self.window is None or context + block <= self.window:
            return "causal" if self.causal else None
        query, key = context + np.arange(block)[:, None], np.arange(context + block)[None]
        within = (key < context) & (query - key < self.window)
        seen: Any = within | ((key >= context) & ((key <= query) | (not self.causal)))
        return mx.array(seen)


def layer_masks(config: DFlashConfig) -> tuple[LayerMask, ...]:
    """Return each layer's mask: `is_causal` holds for all layers; where it is null, sliding ones are causal."""
    return tuple(_mask(config, kind == SLIDING) for kind in config.kinds)


def _mask(config: DFlashConfig, sliding: bool) -> LayerMask:
    return LayerMask(
        config.sliding_window if sliding else None, sliding if config.is_causal is None else config.is_causal
    )


def layer_types(family: str, layers: int) -> tuple[str, ...] | None:
    """Return the layer kinds of a family of FAMILIES, null for all full: in a hybrid only the last layer is full."""
    last = {"full": None, "hybrid": FULL, "sliding": SLIDING}[FAMILIES[family][0]]
    return (*(SLIDING,) * (layers - 1), last) if last else None
