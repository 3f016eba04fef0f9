"""The pass that checks an answer: teacher-forced, on a fresh cache that is never rolled back."""

from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from numpy.typing import NDArray

from draftledger.models.state import TargetState


class ForcedPass:
    """Runs a given answer again with block edges at its rounds, the prefill's token first.

    The cache only ever moves forward, so nothing that decoding rolled back can hide here.
    """

    def __init__(self, model: nn.Module, prompt: Sequence[int], *, taps: tuple[int, ...] = ()) -> None:
        self.state = TargetState(model, taps=taps)
        self._prompt = mx.array(list(prompt), dtype=mx.int32)
        self._anchor: int | None = None

    def rows(self, tokens: Sequence[int], draft: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Return the logits [n, V] behind a round's tokens [n], which are committed.

        With `draft` they are read at the width at which the round was verified, from a fork that is thrown away: in
        bfloat16 another width moves a logit by several ULPs.
        """
        anchor, self._anchor = self._anchor, tokens[-1]
        if anchor is None:
            return _read(self.state.prefill(self._prompt)[None])
        committed = [anchor, *tokens[:-1]]
        verified = committed if draft is None else [anchor, *draft]
        rows = None
        if verified != committed:
            rows = _read(self.state.fork().run_block(mx.array(verified, dtype=mx.int32)))
        forced = self.state.run_block(mx.array(committed, dtype=mx.int32))
        rows = _read(forced) if rows is None else rows
        self.state.commit(len(tokens))
        return rows[: len(tokens)]


class Aside:
    """A state for a drafter to draft on once more: its blocks run on forks of the checking pass's own."""

    def __init__(self, state: TargetState) -> None:
        self._state, self.model = state, state.model

    def run_block(self, ids: mx.array, *, model: nn.Module | None = None) -> mx.array:
        """Run ids: [W] int32 after the committed tokens, and forget them at once."""
        return self._state.fork().run_block(ids, model=model)

    def rollback(self) -> None:
        """Do nothing: the block ran elsewhere."""


def _read(rows: mx.array) -> NDArray[np.float32]:
    return np.array(rows.astype(mx.float32))
