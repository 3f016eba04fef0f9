"""DSpark: a block in one pass, then a small head that lets each token depend on the one before (arXiv 2607.05147)."""

import mlx.core as mx
import numpy as np

from draftledger.decoding.sampling import Sampling
from draftledger.drafters.base import DraftContext, Proposal
from draftledger.drafters.block_adapter import load as load
from draftledger.drafters.block_adapter import module_of
from draftledger.drafters.block_drafter import BlockDrafter
from draftledger.drafters.dflash_config import DSparkConfig
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.initial import untrained as untrained


class DSpark(BlockDrafter):
    """Chooses left to right; q of a slot is conditional on the token chosen before it.

    With `threshold` above 0 a proposal ends before the chance that all of it is accepted falls below that, which waits
    for the device; one token always stays. A slot's chance is told before its token, so that sampling stays exact.
    """

    def __init__(self, model: DFlashDraftModel, *, sampling: Sampling | None = None, threshold: float = 0.0) -> None:
        super().__init__(model, sampling=sampling)
        self.threshold = threshold
        d2t = model.get("d2t")
        self._ids = None if d2t is None else mx.arange(d2t.size, dtype=mx.int32) + d2t.astype(mx.int32)

    def choose(self, hidden: mx.array, logits: mx.array, anchor: mx.array, uniform: np.ndarray | None) -> Proposal:
        """Choose a token a row: hidden [n, H], logits [n, V]; uniform [n] are the draws, null for greedy decoding."""
        tokens, q = self._walk(hidden, logits, anchor, uniform)
        candidates = None if q is None or self._ids is None else mx.broadcast_to(self._ids, q.shape)
        confidence = self._confidence(hidden, mx.concatenate([anchor, tokens[:-1]]))
        proposal = Proposal(tokens, q=q, candidates=candidates, confidence=confidence, forwards=1)
        return _cut(proposal, self.threshold) if self.threshold and confidence is not None else proposal

    def _walk(
        self, hidden: mx.array, logits: mx.array, anchor: mx.array, uniform: np.ndarray | None
    ) -> tuple[mx.array, mx.array | None]:
        head = self.model.get("markov_head")
        if head is None:
            tokens, q = self.pick(logits, uniform)
            return self._in_target(tokens), q
        previous, state, tokens, odds = anchor, None, [], []
        for i in range(logits.shape[0]):
            row, draws = slice(i, i + 1), None if uniform is None else uniform[i : i + 1]
            bias, state = head.bias(previous, hidden[row], state)
            token, q = self.pick(logits[row] + bias, draws)
            previous = self._in_target(token)
            tokens.append(previous)
            odds.append(q)
        return mx.concatenate(tokens), None if uniform is None else mx.concatenate(odds)

    def _in_target(self, tokens: mx.array) -> mx.array:
        """Return the target's ids of ids in the draft vocabulary."""
        return tokens if self._ids is None else self._ids[tokens]

    def _confidence(self, hidden: mx.array, previous: mx.array) -> mx.array | None:
        head, config = self.model.get("confidence_head"), self.model.config
        if head is None:
            return None
        if isinstance(config, DSparkConfig) and config.confidence_head_with_markov:
            hidden = mx.concatenate([hidden, self.model.markov_head.markov_w1(previous)], axis=-1)
        return head(hidden)


def _cut(proposal: Proposal, threshold: float) -> Proposal:
    chance = np.cumprod(np.array(proposal.confidence))
    count = max(1, int((chance >= threshold).cumprod().sum()))
    parts = (proposal.q, proposal.candidates, proposal.confidence)
    q, candidates, confidence = (None if part is None else part[:count] for part in parts)
    return Proposal(proposal.tokens[:count], q, candidates, confidence, proposal.forwards)


def build(context: DraftContext) -> DSpark:
    """Build an answer's drafter."""
    threshold = context.arm.get("confidence_threshold", 0.0)
    return DSpark(module_of(context), sampling=context.sampling, threshold=threshold)
