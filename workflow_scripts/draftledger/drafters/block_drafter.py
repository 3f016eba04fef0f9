"""What all block drafters share: they hear the target's taps, run one masked block and choose from its rows."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from draftledger.decoding.sampling import Sampling, distribution, draw, uniforms
from draftledger.drafters.base import Proposal
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.errors import UnsupportedError


class BlockDrafter:
    """Drafts from one pass over [anchor, mask, mask ...]; a kind says in `choose` how tokens come from its rows."""

    free = 0
    silent = False

    def __init__(self, model: DFlashDraftModel, *, sampling: Sampling | None = None) -> None:
        self.model, self.sampling = model, sampling
        self.block = model.config.proposals
        self.cache = model.make_cache()
        self._heard: list[mx.array] = []
        # Only where no row sees a later one may a block be cut short without changing what is left of it.
        self._causal = all(mask.causal for mask in model.masks)

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Hear the target's hidden states [n, taps, D] of the tokens that came before the next anchor."""
        if taps is None:
            raise UnsupportedError("a block drafter needs the target's hidden states, and none were taken")
        self._heard.append(taps.reshape(1, taps.shape[0], -1))

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Propose `k` tokens after anchor: [1] int32, or the whole block where k is 0."""
        config, count = self.model.config, min(k, self.block) or self.block
        first = config.first_predicting
        masks = (first + count if self._causal else config.block_size) - 1
        block = mx.concatenate([anchor, mx.full((masks,), config.mask_token_id, dtype=anchor.dtype)])
        hidden = self.model.hidden(block[None], self._context(), self.cache, start=first, stop=first + count)[0]
        uniform = uniforms(self.sampling, "draft", step, rows=count) if self.sampling else None
        return self.choose(hidden, self.model.logits(hidden), anchor, uniform)

    def choose(self, hidden: mx.array, logits: mx.array, anchor: mx.array, uniform: np.ndarray | None) -> Proposal:
        """Choose a token a row: hidden [n, H], logits [n, V]; uniform [n] are the draws, null for greedy decoding."""
        tokens, q = self.pick(logits, uniform)
        return Proposal(tokens, q=q, forwards=1)

    def pick(self, logits: mx.array, uniform: np.ndarray | None) -> tuple[mx.array, mx.array | None]:
        """Return each row's argmax, or a draw and what it was drawn from, [n, V], filtered as the target's is."""
        if self.sampling is None or uniform is None:
            return mx.argmax(logits, axis=-1).astype(mx.int32), None
        q = distribution(logits, self.sampling)
        return draw(q, uniform), q

    def _context(self) -> mx.array:
        heard, self._heard = self._heard, []
        if not heard:
            width = len(self.model.config.target_layer_ids) * self.model.config.hidden_size
            return mx.zeros((1, 0, width), dtype=self.model.norm.weight.dtype)
        return heard[0] if len(heard) == 1 else mx.concatenate(heard, axis=1)
