"""No drafter: the autoregressive baseline in our loop, one verified token a round."""

from collections.abc import Sequence

import mlx.core as mx

from draftledger.drafters.base import DraftContext, Proposal, nothing


class Silent:
    """Never proposes."""

    free = 0
    block = 0
    silent = True

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Propose nothing."""
        return nothing()

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Forget it."""


def build(context: DraftContext) -> Silent:
    """Build the baseline; it needs nothing."""
    return Silent()
