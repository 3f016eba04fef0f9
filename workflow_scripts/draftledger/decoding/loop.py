"""The one decode loop of all arms: draft, verify, commit, until the answer ends."""

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx

from draftledger.arrays import integers
from draftledger.decoding.clock import Clock, NoClock
from draftledger.drafters.base import Drafter, Proposal, nothing
from draftledger.models.state import TargetState


@dataclass(frozen=True, slots=True)
class Limits:
    """When an answer ends: after `new_tokens` tokens or at an end-of-sequence id."""

    new_tokens: int
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Round:
    """One round; index -1 is the prefill, which emits the answer's first token.

    `draft` has `free` tokens of the target's own in front; `accepted` counts the speculative ones that verification
    kept, before the answer's end cut `committed` short (`truncated`). `stop` is "eos" or "length" on the last round.
    """

    index: int
    anchor: int
    draft: tuple[int, ...]
    free: int
    accepted: int
    committed: tuple[int, ...]
    truncated: bool
    draft_forwards: int
    replay_forwards: int
    stop: str | None


@dataclass(frozen=True, slots=True)
class _Block:
    """A verify pass that is queued but not read; `chosen` is the target's token after each of its rows."""

    index: int
    proposal: Proposal
    chosen: mx.array


def decode(
    state: TargetState, drafter: Drafter, prompt: mx.array, *, k: int, limits: Limits, clock: Clock | None = None
) -> Iterator[Round]:
    """Yield the prefill and then every round of one greedy answer to prompt: [T] int32.

    Every emitted token is the argmax of the target's logits in the pass that verified it. A silent drafter's next
    round is queued before this one is read, so the device never waits for the host.
    """
    clock, done, anchor = clock or NoClock(), 0, integers(prompt)[-1]
    block = _Block(-1, nothing(), _choose(state.prefill(prompt)[None]))
    while True:
        after = block.index + 1
        ahead = drafter.silent and not clock.waits
        queued = _launch(state, drafter, block.chosen, k=k, index=after, clock=clock) if ahead else None
        result = _settle(state, drafter, block, anchor=anchor, limits=limits, done=done, clock=clock)
        yield result
        if result.stop:
            return
        done, anchor = done + len(result.committed), result.committed[-1]
        drafter.append_context(result.committed)
        block = queued or _launch(state, drafter, mx.array([anchor], dtype=mx.int32), k=k, index=after, clock=clock)


def _choose(logits: mx.array) -> mx.array:
    chosen = mx.argmax(logits, axis=-1).astype(mx.int32)
    mx.async_eval(chosen)
    return chosen


def _launch(state: TargetState, drafter: Drafter, anchor: mx.array, *, k: int, index: int, clock: Clock) -> _Block:
    clock.mark("host")
    if drafter.silent:
        proposal, ids = nothing(), anchor
    else:
        proposal = drafter.propose(anchor, k, step=index)
        ids = mx.concatenate([anchor, proposal.tokens])
        clock.mark("draft", ids)
    chosen = _choose(state.run_block(ids))
    clock.mark("verify", chosen)
    if drafter.silent:
        state.commit(1)
    return _Block(index, proposal, chosen)


def _settle(
    state: TargetState, drafter: Drafter, block: _Block, *, anchor: int, limits: Limits, done: int, clock: Clock
) -> Round:
    chosen, draft = integers(block.chosen), integers(block.proposal.tokens)
    matched = next((i for i, token in enumerate(draft) if token != chosen[i]), len(draft))
    produced = (*draft[:matched], chosen[matched])
    committed, stop = cut(produced, limits, done)
    before = state.replays
    if block.index >= 0 and not drafter.silent and not stop:
        state.commit(matched + 1)
        clock.mark("commit", *state.arrays())
    return Round(
        index=block.index,
        anchor=anchor,
        draft=tuple(draft),
        free=min(drafter.free, len(draft)),
        accepted=max(0, matched - drafter.free),
        committed=committed,
        truncated=len(committed) < len(produced),
        draft_forwards=block.proposal.forwards,
        replay_forwards=state.replays - before,
        stop=stop,
    )


def cut(produced: tuple[int, ...], limits: Limits, done: int) -> tuple[tuple[int, ...], str | None]:
    """Cut a round's tokens at the first end-of-sequence id (kept) or at the length limit, and say which it was."""
    end = next((i + 1 for i, token in enumerate(produced) if token in limits.eos_ids), None)
    room = limits.new_tokens - done
    if end is not None and end <= room:
        return produced[:end], "eos"
    return (produced[:room], "length") if len(produced) >= room else (produced, None)
