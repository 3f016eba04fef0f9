"""The exactness check: every emitted token against a fresh, never rolled back pass over the same blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from numpy.typing import NDArray

from draftledger.arrays import integers, number
from draftledger.decoding.acceptance import Decisions, greedy, sampled
from draftledger.decoding.loop import Round, width
from draftledger.decoding.sampling import Sampling, distribution, uniforms
from draftledger.drafters.base import Drafter, Proposal, nothing
from draftledger.errors import DraftledgerError
from draftledger.measurement.forced import Aside, ForcedPass
from draftledger.measurement.margins import Position, greedy_positions, sampled_positions
from draftledger.models.state import TargetState
from draftledger.rng import generator


class ExactnessError(DraftledgerError):
    """A decoded token is not the target's own choice."""


@dataclass(frozen=True, slots=True)
class Power:
    """What the check is worth: of the runner-ups an adversary emitted, how many it caught, and how many were ties."""

    forced: int
    caught: int
    ties: int


@dataclass(frozen=True, slots=True)
class Redraft:
    """How the check drafts once more: the drafter on a given state, its taps, and its cap."""

    build: Callable[[Any], Drafter]
    taps: tuple[int, ...]
    k: int


def check_answer(
    model: nn.Module,
    prompt: Sequence[int],
    rounds: Sequence[Sequence[int]],
    *,
    drafts: Sequence[Sequence[int]] | None = None,
) -> list[Position]:
    """Return the positions of a greedy answer; `rounds` holds each round's tokens, prefill first.

    With `drafts` each round is read at the width at which it was verified.
    """
    forced, found = ForcedPass(model, prompt), []
    for place, tokens in enumerate(rounds):
        rows = forced.rows(tokens, drafts[place] if drafts else None)
        found += greedy_positions(rows[: len(tokens)], tokens[: len(rows)])
    return found


def check_sampled(
    model: nn.Module,
    prompt: Sequence[int],
    rounds: Sequence[Round],
    *,
    sampling: Sampling,
    allowed: float,
    wide: bool = False,
    redraft: Redraft | None = None,
) -> list[Position]:
    """Return the positions of a sampled answer, every decision made again; `sampling` has the answer's own seed.

    The uniforms must be those of the seed, and p is the check's own. The drafter's q is taken from the record, and
    where a token was corrected from the whole of it, from drafting once more on the checking pass. With `wide` each
    round is read at the width at which it was verified. Raises ExactnessError when a round drew other uniforms.
    """
    unsure = any(result.decisions and any(0 < q < 1 for q in result.decisions.q) for result in rounds)
    again = redraft if unsure else None
    forced, found = ForcedPass(model, prompt, taps=again.taps if again else ()), []
    drafter = again.build(Aside(forced.state)) if again else None
    for result in rounds:
        _require_own_uniforms(result, sampling)
        proposal = nothing()
        if drafter and again and result.index >= 0:
            anchor = mx.array([result.anchor], dtype=mx.int32)
            proposal = drafter.propose(anchor, width(drafter, again.k), step=result.index)
        rows = forced.rows(result.committed, result.draft if wide else None)
        q = _whole(proposal, rows.shape[1]) if integers(proposal.tokens) == list(result.draft) else None
        found += sampled_positions(rows, result, sampling=sampling, allowed=allowed, q=q)
        if drafter:
            drafter.append_context(result.committed, forced.state.take_taps())
    return found


def _whole(proposal: Proposal, vocabulary: int) -> NDArray[np.float64] | None:
    """Return a proposal's distributions over all ids [n, V], or null for a certain one."""
    if proposal.q is None or proposal.candidates is None:
        return None if proposal.q is None else np.array(proposal.q, dtype=np.float64)
    q = np.zeros((proposal.tokens.size, vocabulary))
    np.add.at(q, (np.arange(len(q))[:, None], np.array(proposal.candidates)), np.array(proposal.q))
    return q


def _require_own_uniforms(result: Round, sampling: Sampling) -> None:
    drawn = uniforms(sampling, "verify", result.index, rows=len(result.draft) + 1).tolist()
    tested = min(result.free_accepted + result.accepted + 1, len(result.draft))
    if result.decisions is None or list(result.decisions.uniform) != [*drawn[1 : tested + 1], drawn[0]]:
        raise ExactnessError(f"round {result.index}: its uniforms are not those of the seed; report it")


def require_exact(positions: Sequence[Position], *, allowed: float, where: str) -> None:
    """Raise ExactnessError at the first position whose token is more than `allowed` ULPs off."""
    for place, position in enumerate(positions):
        if not position.margin_ulp <= allowed:  # a margin that is no number fails too
            raise ExactnessError(
                f"{where}, position {place}: token {position.token} lies {position.margin_ulp:.0f} ULP from what its "
                f"logits decide, whose best is {position.argmax} (allowed {allowed:g}); not lossless, report it"
            )


def adversary(
    model: nn.Module,
    prompt: Sequence[int],
    *,
    tokens: int,
    allowed: float,
    seed: int,
    sampling: Sampling | None = None,
) -> Power:
    """Decode an answer that emits the runner-up at about every fourth token and see what the check catches.

    Raises ExactnessError when a forced token passes that is no tie, or an honest one fails.
    """
    rounds, lies = _lying_answer(model, prompt, tokens=tokens, seed=seed, sampling=sampling)
    if sampling:
        found = check_sampled(model, prompt, rounds, sampling=sampling, allowed=allowed)
    else:
        found = check_answer(model, prompt, [result.committed for result in rounds])
    caught = {place for place, position in enumerate(found) if position.margin_ulp > allowed}
    missed = {place for place, gap in lies.items() if gap > 2 * allowed} - caught
    if missed or caught - set(lies):
        raise ExactnessError("the exactness check failed its own adversary; this is a fault, report it")
    return Power(len(lies), len(caught), len(lies) - len(caught))


def _lying_answer(
    model: nn.Module, prompt: Sequence[int], *, tokens: int, seed: int, sampling: Sampling | None
) -> tuple[list[Round], dict[int, float]]:
    """Return the answer as rounds of one token, and by place of each lie how many ULPs away the runner-up was."""
    state = TargetState(model)
    lying = generator(seed, "adversary", 0).random(tokens) < 0.25
    logits, rounds, lies = state.prefill(mx.array(list(prompt), dtype=mx.int32))[None], [], {}
    for place, lie in enumerate(lying.tolist()):
        result, gap = _step(logits, place - 1, lie=lie, sampling=sampling)
        rounds.append(result)
        if lie:
            lies[place] = gap
        logits = state.run_block(mx.array(result.committed, dtype=mx.int32))
        state.commit(1)
    return rounds, lies


def _step(logits: mx.array, index: int, *, lie: bool, sampling: Sampling | None) -> tuple[Round, float]:
    """Return a round of one token from logits [1, V], honest or the runner-up, and how far the runner-up lies."""
    outcome = sampled(logits, nothing(), index, sampling=sampling) if sampling else greedy(logits, nothing(), index)
    honest = _one_token(index, integers(outcome.token)[0], outcome.decisions())
    if sampling is None:
        [position] = greedy_positions(_rows(logits), honest.committed)
        return (_one_token(index, position.runner_up, None) if lie else honest), position.runner_up_ulp
    [position] = sampled_positions(_rows(logits), honest, sampling=sampling, allowed=0)
    if not lie or honest.decisions is None:
        return honest, position.runner_up_ulp
    p = number(distribution(logits, sampling)[0, position.runner_up])
    return _one_token(index, position.runner_up, replace(honest.decisions, p=(p,))), position.runner_up_ulp


def _one_token(index: int, token: int, decisions: Decisions | None) -> Round:
    return Round(index, token, (), 0, 0, 0, (token,), False, 0, 0, None, decisions)


def _rows(logits: mx.array) -> NDArray[np.float32]:
    return np.array(logits.astype(mx.float32))
