"""Drafts the known answer: the ceiling of what any drafter of this width can gain."""

from collections.abc import Sequence

import mlx.core as mx

from draftledger.drafters.base import LONGEST, DraftContext, Proposal, nothing
from draftledger.errors import ConfigError
from draftledger.rng import generator


class Oracle:
    """Knows the answer; with `corruption` > 0 each token is replaced by a keyed random one with that chance."""

    free = 0
    block = LONGEST
    silent = False

    def __init__(self, answer: Sequence[int], *, corruption: float = 0.0, vocabulary: int = 0, noise: int = 0) -> None:
        self.answer = tuple(answer)
        self.corruption = corruption
        self.vocabulary = vocabulary
        self.noise = noise
        self.place = 0

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Move on by the committed tokens; once they part from the answer there is nothing more to know."""
        if tuple(ids) != self.answer[self.place : self.place + len(ids)]:
            self.answer = ()
        self.place += len(ids)

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Propose the next up to `k` tokens of the answer."""
        tokens = list(self.answer[self.place : self.place + k])
        draws = generator(self.noise, "oracle", step)
        tokens = [
            int(draws.integers(self.vocabulary)) if draws.random() < self.corruption else token for token in tokens
        ]
        return Proposal(mx.array(tokens, dtype=mx.int32)) if tokens else nothing()


def build(context: DraftContext) -> Oracle:
    """Build an oracle from the autoregressive arm's answer; raise ConfigError when it was not given."""
    if context.answer is None:
        raise ConfigError("arm of kind oracle: the answers of arm `ar` were not given; add `ar` to the arms")
    return Oracle(context.answer)
