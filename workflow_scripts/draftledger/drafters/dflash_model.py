"""The drafters' network: a few layers that turn target features and a masked block into a block of logits."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.drafters.context_cache import ContextCache
from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig
from draftledger.drafters.dflash_layers import Mask, layer_of, norm_of
from draftledger.drafters.layer_mask import layer_masks
from draftledger.drafters.markov import HEADS, ConfidenceHead
from draftledger.drafters.selector import CandidateSelector
from draftledger.drafters.target_ends import TargetEnds, ends_of
from draftledger.errors import UnsupportedError


class DFlashDraftModel(nn.Module):
    """A drafter's weights, under the names that they are published with; embedding and head are the target's.

    `bind` comes before any call. DFlash 2 has its selector, DSpark its heads and, where the checkpoint brings them,
    an embedding, a head and a draft vocabulary of its own.
    """

    def __init__(self, config: DFlashConfig, *, own: Sequence[str] = ()) -> None:
        super().__init__()
        self.config, self.masks = config, layer_masks(config)
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm, self.norm = norm_of(config), norm_of(config)
        self.layers = [layer_of(config) for _ in range(config.num_hidden_layers)]
        self.ends: TargetEnds | None = None
        if config.selector_rank and config.selector_top_k:
            self.candidate_selector = CandidateSelector(
                config.hidden_size,
                vocabulary=config.vocab_size,
                rank=config.selector_rank,
                top_k=config.selector_top_k,
            )
        if isinstance(config, DSparkConfig):
            self._add_heads(config, own)

    def _add_heads(self, config: DSparkConfig, own: Sequence[str]) -> None:
        hidden, drafted = config.hidden_size, config.draft_vocab_size or config.vocab_size
        if "embed_tokens.weight" in own:
            self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        if "lm_head.weight" in own:
            self.lm_head = nn.Linear(hidden, drafted, bias=False)
        if config.markov_rank:
            self.markov_head = HEADS[config.markov_head_type](
                hidden, vocabulary=config.vocab_size, drafted=drafted, rank=config.markov_rank
            )
        if config.enable_confidence_head:
            self.confidence_head = ConfidenceHead(
                hidden + config.markov_rank * bool(config.confidence_head_with_markov)
            )
        if drafted != config.vocab_size:
            self.d2t = mx.zeros((drafted,), dtype=mx.int32)

    def bind(self, target: nn.Module) -> "DFlashDraftModel":
        """Borrow the target's embedding and head, and return this."""
        self.ends = ends_of(target)
        return self

    def make_cache(self) -> list[ContextCache]:
        """Return an empty context cache for each layer."""
        return [ContextCache(mask.stored) for mask in self.masks]

    def __call__(
        self, inputs: mx.array, target_hidden: mx.array, cache: list[ContextCache], logits_start: int = 0
    ) -> mx.array:
        """Return logits [1, B - logits_start, V] of the block `inputs` [1, B] after new features [1, S, T·H]."""
        return self.logits(self.hidden(inputs, target_hidden, cache, start=logits_start))

    def hidden(
        self,
        inputs: mx.array,
        target_hidden: mx.array,
        cache: list[ContextCache],
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> mx.array:
        """Return final hidden states [1, stop - start, H] of a block, and append its new context to the cache."""
        context = self.features(target_hidden)
        x = self.embed(inputs)
        for layer, mask, layer_cache in zip(self.layers, self._seen(inputs, context, cache), cache, strict=True):
            x = layer(x, context, layer_cache, mask)
        return self.norm(x[:, start:stop])

    def features(self, target_hidden: mx.array) -> mx.array:
        """Return context features [1, S, H] of the target's tapped states [1, S, T·H], shared by all layers."""
        return self.hidden_norm(self.fc(target_hidden.astype(self.hidden_norm.weight.dtype)))

    def embed(self, ids: mx.array) -> mx.array:
        """Return the block's embeddings [..., H]: the drafter's own, else the target's with the target's scale."""
        scale = self.config.input_embedding_scale or 1.0
        if "embed_tokens" in self:
            scale *= self.config.hidden_size**0.5 if getattr(self.config, "family", "") == "gemma4" else 1.0
            found = self.embed_tokens(ids)
        else:
            found = self._target.embed(ids)
        return (found if scale == 1 else found * scale).astype(self.norm.weight.dtype)

    def logits(self, hidden: mx.array) -> mx.array:
        """Return logits [..., V], or of the draft vocabulary: times the multiplier, then softly capped."""
        found = self.lm_head(hidden) if "lm_head" in self else self._target.head(hidden)
        factor, cap = self.config.output_multiplier, self.config.final_logit_softcapping
        found = found if factor == 1 else found * factor
        return mx.tanh(found / cap) * cap if cap else found

    @property
    def _target(self) -> TargetEnds:
        if self.ends is None:
            raise UnsupportedError("the drafter is not bound to a target; call bind first")
        return self.ends

    def _seen(self, inputs: mx.array, context: mx.array, cache: list[ContextCache]) -> list[Mask]:
        """Return each layer's mask, built once for all layers alike."""
        built: dict[Any, Mask] = {}
        for mask, layer in zip(self.masks, cache, strict=True):
            if mask not in built:
                rows = layer.rows + context.shape[1]
                built[mask] = mask.build(inputs.shape[1], rows if mask.stored is None else min(rows, mask.stored))
        return [built[mask] for mask in self.masks]
