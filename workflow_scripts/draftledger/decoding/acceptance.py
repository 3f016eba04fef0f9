"""Which draft tokens verification keeps, and the target's own token after them: greedy and sampled."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from draftledger.arrays import integers
from draftledger.decoding.sampling import Sampling, coarse, distribution, draw, uniforms
from draftledger.drafters.base import Proposal


@dataclass(frozen=True, slots=True)
class Decisions:
    """A sampled round's decisions in order: a test for each draft token up to the first refused one, then the draw.

    `p` and `q` are what target and drafter gave the tested, and last the drawn token; `q` of a draw that followed no
    refusal is 0.
    """

    uniform: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict on one block that is queued but not read.

    `token` [1] int32 is the target's own; `read` [n + 2] int32 holds how many draft tokens were kept, that token, and
    the draft. Sampled: `odds` [2, n + 1] float32, p and q of the draft tokens and of the drawn one, and `uniform`
    [n + 1], the draw's first.
    """

    token: mx.array
    read: mx.array
    odds: mx.array | None = None
    uniform: np.ndarray | None = None

    def decisions(self) -> Decisions | None:
        """Return the decisions of a sampled round, or null for a greedy one."""
        if self.odds is None or self.uniform is None:
            return None
        offered, places = len(self.uniform) - 1, np.array(self.odds)
        order = [*range(min(integers(self.read)[0] + 1, offered)), offered]
        drawn = [*self.uniform[1:], self.uniform[0]]
        return Decisions(*(tuple(float(values[i]) for i in order) for values in (drawn, *places)))


def greedy(logits: mx.array, proposal: Proposal, step: int) -> Outcome:
    """Keep draft tokens while each is the argmax of its row of logits [n + 1, V]; of equal logits the lowest id."""
    chosen = mx.argmax(logits, axis=-1).astype(mx.int32)
    if not proposal.tokens.size:
        return queued(proposal, mx.zeros((1,), dtype=mx.int32), chosen)
    kept = _leading(proposal.tokens == chosen[:-1])
    return queued(proposal, kept, mx.take(chosen, kept))


def sampled(logits: mx.array, proposal: Proposal, step: int, *, sampling: Sampling) -> Outcome:
    """Keep draft tokens by speculative sampling on rows [n + 1, V], so that what is emitted is a sample of the target.

    Leviathan et al. 2023, algorithm 1. Its uniforms are those of (`sampling.seed`, "verify", step).
    """
    p = distribution(logits, sampling)
    uniform = uniforms(sampling, "verify", step, rows=p.shape[0])
    kept, weights = verdict(p, proposal, uniform[1:])
    token = draw(weights, uniform[:1])
    odds = mx.stack([_at(mx.take(p, kept, axis=0), token), _at(_refused(proposal, kept, p.shape[1]), token)])
    if proposal.tokens.size:
        odds = mx.concatenate([mx.stack([_at(p[:-1], proposal.tokens), _claimed(proposal)]), odds], axis=1)
    return queued(proposal, kept, token, odds=odds, uniform=uniform)


def verdict(p: mx.array, proposal: Proposal, uniform: np.ndarray) -> tuple[mx.array, mx.array]:
    """Return how many draft tokens are kept, [1] int32, and the weights [1, V] of the draw that follows them.

    Token x is kept while uniform < p(x) / q(x). After a refusal the weights are what p exceeds q by, or p itself
    where rounding leaves nothing of that; otherwise they are p of the row after the draft. p: [n + 1, V] float32.
    """
    if not proposal.tokens.size:
        return mx.zeros((1,), dtype=mx.int32), p
    kept = _leading(coarse(uniform) * _claimed(proposal) < _at(p[:-1], proposal.tokens))
    row = mx.take(p, kept, axis=0)
    left = mx.maximum(row - _refused(proposal, kept, p.shape[1]), 0)
    return kept, mx.where(left.sum() > 0, left, row)


def queued(
    proposal: Proposal,
    kept: mx.array,
    token: mx.array,
    *,
    odds: mx.array | None = None,
    uniform: np.ndarray | None = None,
) -> Outcome:
    """Return the outcome of keeping `kept` [1] draft tokens before `token` [1], and start computing it."""
    outcome = Outcome(token, mx.concatenate([kept, token, proposal.tokens]), odds, uniform)
    mx.async_eval(outcome.read, *([] if odds is None else [odds]))
    return outcome


def _leading(passed: mx.array) -> mx.array:
    return mx.cumprod(passed.astype(mx.int32)).sum(keepdims=True).astype(mx.int32)


def _at(rows: mx.array, ids: mx.array) -> mx.array:
    return mx.take_along_axis(rows, ids[:, None], axis=1)[:, 0]


def _claimed(proposal: Proposal) -> mx.array:
    """Return the drafter's probability [n] of each token that it drafted."""
    if proposal.q is None:
        return mx.ones(proposal.tokens.shape, dtype=mx.float32)
    if proposal.candidates is None:
        return _at(proposal.q, proposal.tokens)
    return mx.where(proposal.candidates == proposal.tokens[:, None], proposal.q, 0).sum(axis=1)


def _refused(proposal: Proposal, kept: mx.array, vocabulary: int) -> mx.array:
    """Return the drafter's distribution [1, V] at the refused token, or zeros when none was refused."""
    nothing, offered = mx.zeros((1, vocabulary), dtype=mx.float32), proposal.tokens.size
    if not offered:
        return nothing
    row = mx.minimum(kept, offered - 1)
    if proposal.q is not None and proposal.candidates is None:
        q = mx.take(proposal.q, row, axis=0)
    else:
        columns = proposal.tokens[:, None] if proposal.candidates is None else proposal.candidates
        masses = mx.ones(columns.shape, dtype=mx.float32) if proposal.q is None else proposal.q
        q = nothing.at[0, mx.take(columns, row, axis=0)[0]].add(mx.take(masses, row, axis=0)[0])
    return mx.where(kept < offered, q, nothing)
