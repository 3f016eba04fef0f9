"""Verification that decides near-ties as autoregressive decoding does, so that answers are equal to the byte."""

import mlx.core as mx

from draftledger.arrays import integers
from draftledger.decoding.acceptance import Outcome, queued
from draftledger.drafters.base import Proposal
from draftledger.models.state import TargetState

# How far apart, relative to the larger, two logits must lie for a block's width and history not to change their order.
TOLERANCE = 1024 * 2.0**-23


class Arbiter:
    """Greedy verification with a second state that takes over where a block's best two logits almost tie.

    That state runs the answer token by token from the prefill on, as autoregressive decoding does, and only as far as
    the last near-tie: at most one forward for each token of the answer, and none without a near-tie.
    """

    def __init__(self, state: TargetState) -> None:
        self._alone = state.fork()
        self._ran = 0
        self._answer: list[int] = []

    def __call__(self, logits: mx.array, proposal: Proposal, step: int) -> Outcome:
        """Keep draft tokens while each is what autoregressive decoding emits; logits: [n + 1, V]."""
        best = mx.topk(logits.astype(mx.float32), 2, axis=-1)
        first, second = best.max(axis=-1), best.min(axis=-1)
        close = first - second <= TOLERANCE * mx.abs(first)
        mx.async_eval(close, proposal.tokens)
        chosen, unsure, draft = integers(mx.argmax(logits, axis=-1)), integers(close), integers(proposal.tokens)
        kept = 0
        while True:
            token = self._decide() if unsure[kept] and self._answer else chosen[kept]
            self._answer.append(token)
            if kept == len(draft) or token != draft[kept]:
                return queued(proposal, mx.array([kept], dtype=mx.int32), mx.array([token], dtype=mx.int32))
            kept += 1

    def _decide(self) -> int:
        """Bring the second state up to the answer so far and return the token that follows."""
        for token in self._answer[self._ran : -1]:
            mx.async_eval(self._step(token))
        self._ran = len(self._answer)
        return integers(mx.argmax(self._step(self._answer[-1]), axis=-1))[0]

    def _step(self, token: int) -> mx.array:
        logits = self._alone.run_block(mx.array([token], dtype=mx.int32))
        self._alone.commit(1)
        self._alone.take_taps()  # nobody hears them, so they must not pile up
        return logits
