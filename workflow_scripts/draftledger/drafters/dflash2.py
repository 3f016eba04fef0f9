"""DFlash 2: DFlash with convolutions in its layers, and a selector that walks one path through the candidates."""

import mlx.core as mx
import numpy as np

from draftledger.drafters.base import DraftContext, Proposal
from draftledger.drafters.block_adapter import load as load
from draftledger.drafters.block_adapter import module_of
from draftledger.drafters.block_drafter import BlockDrafter
from draftledger.drafters.initial import untrained as untrained


class DFlash2(BlockDrafter):
    """The selector chooses; what it drew from is sparse, a few candidates a slot."""

    def choose(self, hidden: mx.array, logits: mx.array, anchor: mx.array, uniform: np.ndarray | None) -> Proposal:
        """Choose a path: hidden [n, H], logits [n, V]; uniform [n] are the draws, null for greedy decoding."""
        path = self.model.candidate_selector(hidden, logits, anchor, sampling=self.sampling, uniform=uniform)
        return Proposal(path.tokens, q=path.q, candidates=path.candidates, forwards=1)


def build(context: DraftContext) -> DFlash2:
    """Build an answer's drafter."""
    return DFlash2(module_of(context), sampling=context.sampling)
