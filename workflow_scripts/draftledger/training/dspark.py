"""DSpark's training: slots hear the token before them, and a head learns how likely each is accepted (2607.05147)."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.drafters.dflash_config import DSparkConfig
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.training.block_drafter import BlockDrafterObjective
from draftledger.training.data import Windows

TINY = 1e-6


class DSparkObjective(BlockDrafterObjective):
    """Teacher forcing: the head of each slot hears the text's own token before it."""

    def logits(self, student: DFlashDraftModel, hidden: mx.array, before: mx.array) -> mx.array:
        """Return the drafter's logits [N, n, V] float32 of hidden rows [N, n, H] after the tokens before [N, n]."""
        found, head, state = student.logits(hidden), student.get("markov_head"), None
        if head is None:
            return found.astype(mx.float32)
        biases = []
        for slot in range(hidden.shape[1]):
            bias, state = head.bias(before[:, slot], hidden[:, slot], state)
            biases.append(bias)
        return (found + mx.stack(biases, axis=1)).astype(mx.float32)

    def extra(self, student: DFlashDraftModel, hidden: mx.array, before: mx.array, tv: mx.array) -> mx.array:
        """Return the confidence head's binary cross-entropy [N, n] against the slots' acceptance, 1 − tv."""
        if isinstance(self.config, DSparkConfig) and self.config.confidence_head_with_markov:
            hidden = mx.concatenate([hidden, student.markov_head.markov_w1(before)], axis=-1)
        chance = student.confidence_head(hidden.reshape(-1, hidden.shape[-1])).reshape(tv.shape)
        accepted = mx.stop_gradient(1 - tv)
        return -(accepted * mx.log(chance + TINY) + (1 - accepted) * mx.log(1 - chance + TINY))


def build(model: nn.Module, *, windows: dict[str, Windows], spec: dict[str, Any], seed: int) -> DSparkObjective:
    """Build the objective of one seed."""
    return DSparkObjective(model, train=windows["train"], validation=windows["validation"], spec=spec, seed=seed)
