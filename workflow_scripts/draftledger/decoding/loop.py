"""The one decode loop of all arms: draft, verify, commit, until the answer ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from draftledger.arrays import integers
from draftledger.decoding.acceptance import Decisions, Outcome, greedy, sampled
from draftledger.decoding.clock import Clock, NoClock
from draftledger.decoding.exact import Arbiter
from draftledger.decoding.sampling import Sampling
from draftledger.decoding.stopping import Limits, cut
from draftledger.drafters.base import Drafter, Proposal, nothing
from draftledger.errors import ConfigError
from draftledger.models.state import TargetState

Judge = Callable[[mx.array, Proposal, int], Outcome]


@dataclass(frozen=True, slots=True)
class Round:
    """One round; index -1 is the prefill, which emits the answer's first token.

    `draft` has `free` tokens of the target's own in front, of which verification kept `free_accepted`; `accepted`
    counts the speculative ones that it kept, before the answer's end cut `committed` short (`truncated`). `stop` is
    "eos", "stop" or "length" on the last round. `decisions` are those of a sampled round. `reason`, on the prefill,
    says why an arm that drafts decoded the answer token by token.
    """

    index: int
    anchor: int
    draft: tuple[int, ...]
    free: int
    free_accepted: int
    accepted: int
    committed: tuple[int, ...]
    truncated: bool
    draft_forwards: int
    replay_forwards: int
    stop: str | None
    decisions: Decisions | None = None
    reason: str | None = None

    @property
    def offered(self) -> int:
        """Return the speculative tokens put to the test: none when a free token before them was refused."""
        return len(self.draft) - self.free if self.free_accepted == self.free else 0


@dataclass(frozen=True, slots=True)
class _Block:
    """A verify pass that is queued but not read."""

    index: int
    proposal: Proposal
    outcome: Outcome


def decode(
    state: TargetState,
    drafter: Drafter,
    prompt: mx.array,
    *,
    k: int,
    limits: Limits,
    clock: Clock | None = None,
    sampling: Sampling | None = None,
    exact: bool = False,
) -> Iterator[Round]:
    """Yield the prefill and then every round of one answer to prompt: [T] int32.

    At most `k` speculative tokens are drafted a round, or the drafter's whole block where k is 0. Every emitted token
    is the argmax of the target's logits in the pass that verified it or, with `sampling`, a sample from them; with
    `exact`, near-ties are decided as autoregressive decoding would. A silent drafter's next round is queued before
    this one is read, so the device never waits for the host. Raises ConfigError for `exact` with `sampling`.
    """
    if exact and sampling:
        raise ConfigError("decode.exact: only greedy decoding has one right answer; leave exact or sampling out")
    clock, answer, anchor = clock or NoClock(), [], integers(prompt)[-1]
    logits = state.prefill(prompt)
    judge: Judge = partial(sampled, sampling=sampling) if sampling else greedy
    if exact and not drafter.silent:
        judge = Arbiter(state)
    block = _Block(-1, nothing(), judge(logits[None], nothing(), -1))
    while True:
        launch = partial(_launch, state, drafter, judge, k=width(drafter, k), index=block.index + 1, clock=clock)
        queued = launch(block.outcome.token) if drafter.silent and not clock.waits else None
        result = _settle(state, drafter, block, anchor=anchor, limits=limits, answer=answer, clock=clock)
        yield result
        if result.stop:
            return
        answer.extend(result.committed)
        anchor = result.committed[-1]
        drafter.append_context(result.committed, state.take_taps())
        block = queued or launch(block.outcome.token)


def width(drafter: Drafter, k: int) -> int:
    """Return the speculative tokens a round that a cap of k gives; 0 is the drafter's whole block."""
    return min(k, drafter.block) if k else drafter.block


def _launch(
    state: TargetState, drafter: Drafter, judge: Judge, anchor: mx.array, *, k: int, index: int, clock: Clock
) -> _Block:
    clock.mark("host")
    if drafter.silent:
        proposal, ids = nothing(), anchor
    else:
        proposal = drafter.propose(anchor, k, step=index)
        ids = mx.concatenate([anchor, proposal.tokens])
        clock.mark("draft", ids)
    outcome = judge(state.run_block(ids), proposal, index)
    clock.mark("verify", outcome.read)
    if drafter.silent:
        state.commit(1)
    return _Block(index, proposal, outcome)


def _settle(
    state: TargetState, drafter: Drafter, block: _Block, *, anchor: int, limits: Limits, answer: list[int], clock: Clock
) -> Round:
    kept, token, *draft = integers(block.outcome.read)
    committed, stop = cut((*draft[:kept], token), limits, answer)
    before = state.replays
    if block.index >= 0 and not drafter.silent and not stop:
        state.commit(kept + 1)
        clock.mark("commit", *state.arrays())
    free = min(drafter.free, len(draft))
    return Round(
        index=block.index,
        anchor=anchor,
        draft=tuple(draft),
        free=free,
        free_accepted=min(free, kept),
        accepted=max(0, kept - free),
        committed=committed,
        truncated=len(committed) < kept + 1,
        draft_forwards=block.proposal.forwards,
        replay_forwards=state.replays - before,
        stop=stop,
        decisions=block.outcome.decisions(),
    )
