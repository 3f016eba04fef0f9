"""DFlash 2: DFlash with convolutions in its layers, and a selector that walks one path through the candidates."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from draftledger.drafters.base import Adapter, DraftContext, Proposal
from draftledger.drafters.block_adapter import load_adapter, module_of
from draftledger.drafters.block_drafter import BlockDrafter
from draftledger.drafters.initial import untrained_adapter


class DFlash2(BlockDrafter):
    """The selector chooses; what it drew from is sparse, a few candidates a slot."""

    def choose(self, hidden: mx.array, logits: mx.array, anchor: mx.array, uniform: np.ndarray | None) -> Proposal:
        """Choose a path: hidden [n, H], logits [n, V]; uniform [n] are the draws, null for greedy decoding."""
        path = self.model.candidate_selector(hidden, logits, anchor, sampling=self.sampling, uniform=uniform)
        return Proposal(path.tokens, q=path.q, candidates=path.candidates, forwards=1)


def load(spec: dict[str, Any], path: Path, *, model: nn.Module) -> Adapter:
    """Load a published or trained drafter for this target."""
    return load_adapter(spec, path, model=model)


def untrained(spec: dict[str, Any], *, model: nn.Module) -> Adapter:
    """Return the drafter that training starts from."""
    return untrained_adapter(spec, model=model)


def build(context: DraftContext) -> DFlash2:
    """Build an answer's drafter."""
    return DFlash2(module_of(context), sampling=context.sampling)
