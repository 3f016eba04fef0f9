"""Prompt n-gram drafting: continue the most recent earlier occurrence of the last tokens (prompt lookup decoding)."""

from collections.abc import Sequence

import mlx.core as mx

from draftledger.drafters.base import LONGEST, DraftContext, Proposal, nothing


class Lookup:
    """Remembers where each n-gram of the prompt and answer last ended."""

    free = 0
    block = LONGEST
    silent = False

    def __init__(self, prompt: Sequence[int], *, ngram: int) -> None:
        self.ngram = ngram
        self.context: list[int] = []
        self._follows: dict[tuple[int, ...], int] = {}
        self.append_context(prompt)

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Add committed ids; the n-gram that ends the context is indexed once something follows it."""
        for token in ids:
            if len(self.context) >= self.ngram:
                self._follows[tuple(self.context[-self.ngram :])] = len(self.context)
            self.context.append(token)

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Propose the up to `k` tokens that followed the last n-gram before, or nothing."""
        start = self._follows.get(tuple(self.context[-self.ngram :]))
        if start is None:
            return nothing()
        return Proposal(mx.array(self.context[start : start + k], dtype=mx.int32))


def build(context: DraftContext) -> Lookup:
    """Build a lookup drafter over the prompt; `ngram` is how many last tokens must match."""
    return Lookup(context.prompt, ngram=context.arm["ngram"])
