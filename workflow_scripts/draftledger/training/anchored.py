"""All blocks of a window in one pass: each block's rows see the context before their anchor and their own block."""

from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx

from draftledger.drafters.dflash_attention import DFlashAttention
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.layer_mask import LayerMask
from draftledger.models.view import of_kind, with_modules


@dataclass(frozen=True, slots=True)
class Blocks:
    """M blocks of `rows` rows in each of W windows of `length` tokens; anchors: [W, M] int32, each at least 1.

    Row r of a block stands at position anchor + r. Who sees whom is told by the block's number, never by positions:
    blocks may overlap.
    """

    anchors: mx.array
    rows: int
    length: int

    @property
    def offsets(self) -> mx.array:
        """Return the position of each block's first row, [W·M]."""
        return self.anchors.reshape(-1)

    def mask(self, layer: LayerMask) -> mx.array:
        """Return what each row sees of the window's context and of all its blocks: [W, 1, M·rows, length + M·rows]."""
        windows, count = self.anchors.shape
        place, row = mx.arange(self.length), mx.tile(mx.arange(self.rows), count)
        block = mx.repeat(mx.arange(count), self.rows)
        anchor = mx.repeat(self.anchors, self.rows, axis=1)[..., None]
        context = place < anchor
        if layer.window is not None:
            context &= anchor + row[:, None] - place < layer.window
        own = block[:, None] == block
        if layer.causal:
            own &= row[:, None] >= row
        own = mx.broadcast_to(own, (windows, *own.shape))
        return mx.concatenate([context, own], axis=-1)[:, None]


class AnchoredAttention(DFlashAttention):
    """The drafter's attention with a window's blocks side by side; weights and arithmetic are those of decoding."""

    def __call__(self, x: mx.array, context: mx.array, cache: Any, mask: mx.array | str | None) -> mx.array:
        """Attend from blocks x [W·M, B, H] over features context [W, T, H] and each block itself; `cache` is Blocks."""
        blocks: Blocks = cache
        keys, values = self.keys_values(context, offset=0)
        own_keys, own_values = self.keys_values(x, offset=blocks.offsets)
        queries, gate = self.queries(x, offset=blocks.offsets)
        windows = context.shape[0]
        keys = mx.concatenate([keys, _abreast(own_keys, windows)], axis=2)
        values = mx.concatenate([values, _abreast(own_values, windows)], axis=2)
        gate = None if gate is None else gate.reshape(windows, -1, gate.shape[-1])
        return self.attend(_abreast(queries, windows), keys, values, mask=mask, gate=gate).reshape(x.shape)


def _abreast(heads: mx.array, windows: int) -> mx.array:
    """Lay the blocks [W·M, H, B, D] of each window in one row: [W, H, M·B, D]."""
    _, count, _, width = heads.shape
    return heads.reshape(windows, -1, *heads.shape[1:]).transpose(0, 2, 1, 3, 4).reshape(windows, count, -1, width)


def anchored(drafter: DFlashDraftModel) -> DFlashDraftModel:
    """Return a twin of a drafter, its weights shared, for `hidden_rows` to run."""
    attention = {f"layers.{i}.self_attn": layer.self_attn for i, layer in enumerate(drafter.layers)}
    twin = with_modules(drafter, {path: of_kind(part, AnchoredAttention) for path, part in attention.items()})
    return cast(DFlashDraftModel, twin)


def hidden_rows(twin: DFlashDraftModel, inputs: mx.array, features: mx.array, blocks: Blocks) -> mx.array:
    """Return the final hidden states [W·M, n, H] of the rows that predict.

    inputs: [W·M, B] int32, each block's ids; features: [W, T, taps·H], the target's tapped states of the windows.
    """
    context, x = twin.features(features), twin.embed(inputs)
    masks = {mask: blocks.mask(mask) for mask in set(twin.masks)}
    for layer, mask in zip(twin.layers, twin.masks, strict=True):
        x = layer(x, context, cast(Any, blocks), masks[mask])
    return twin.norm(x[:, twin.config.first_predicting :])
