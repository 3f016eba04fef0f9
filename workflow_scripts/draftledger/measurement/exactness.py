"""The exactness check: every emitted token against a fresh, never rolled back pass over the same blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from draftledger.errors import DraftledgerError
from draftledger.models.state import TargetState
from draftledger.rng import generator


class ExactnessError(DraftledgerError):
    """A decoded token is not the target's own choice."""


@dataclass(frozen=True, slots=True)
class Position:
    """One emitted token and how far below the row's maximum its logit and the runner-up's lie, in float32 ULPs."""

    token: int
    argmax: int
    margin_ulp: float
    runner_up: int
    runner_up_ulp: float


@dataclass(frozen=True, slots=True)
class Power:
    """What the check is worth: of the runner-ups an adversary emitted, how many it caught, and how many were ties."""

    forced: int
    caught: int
    ties: int


def check_answer(
    model: nn.Module,
    prompt: Sequence[int],
    rounds: Sequence[Sequence[int]],
    *,
    drafts: Sequence[Sequence[int]] | None = None,
) -> list[Position]:
    """Teacher-force an answer with block edges at its rounds: `rounds` holds each round's tokens, prefill first.

    The cache is fresh and only ever moves forward, so nothing that decoding rolled back can hide here. With
    `drafts` each round's rows are read at the width at which it was verified, from a fork that is thrown away:
    in bfloat16 another width moves a logit by several ULPs.
    """
    state = TargetState(model)
    found = _positions(state.prefill(mx.array(list(prompt), dtype=mx.int32))[None], rounds[0][:1])
    anchor = rounds[0][0]
    for place, tokens in enumerate(rounds[1:], start=1):
        committed = [anchor, *tokens[:-1]]
        verified = [anchor, *drafts[place]] if drafts else committed
        rows = state.run_block(mx.array(committed, dtype=mx.int32)) if verified == committed else None
        if rows is None:
            rows = state.fork().run_block(mx.array(verified, dtype=mx.int32))
            mx.eval(rows)
            state.run_block(mx.array(committed, dtype=mx.int32))
        found += _positions(rows[: len(tokens)], tokens)
        state.commit(len(tokens))
        anchor = tokens[-1]
    return found


def _positions(logits: mx.array, tokens: Sequence[int]) -> list[Position]:
    rows = np.array(logits.astype(mx.float32))
    unit = np.spacing(np.abs(rows.max(axis=-1)))
    order = np.argsort(-rows, axis=-1, kind="stable")[:, :2]
    return [
        Position(
            token=int(token),
            argmax=int(order[i, 0]),
            margin_ulp=float((rows[i].max() - rows[i, token]) / unit[i]),
            runner_up=int(order[i, 1]),
            runner_up_ulp=float((rows[i].max() - rows[i, order[i, 1]]) / unit[i]),
        )
        for i, token in enumerate(tokens)
    ]


def require_exact(positions: Sequence[Position], *, allowed: float, where: str) -> None:
    """Raise ExactnessError at the first position whose token is more than `allowed` ULPs below the maximum."""
    for place, position in enumerate(positions):
        if not position.margin_ulp <= allowed:  # a margin that is no number fails too
            raise ExactnessError(
                f"{where}, position {place}: token {position.token} lies {position.margin_ulp:.0f} ULP below "
                f"{position.argmax} (allowed {allowed:g}); decoding is not lossless, report it"
            )


def adversary(model: nn.Module, prompt: Sequence[int], *, tokens: int, allowed: float, seed: int) -> Power:
    """Decode an answer that emits the runner-up at about every fourth token and see what the check catches.

    Raises ExactnessError when a forced token passes that is no tie, or an honest one fails.
    """
    answer, lies = _lying_answer(model, prompt, tokens=tokens, seed=seed)
    found = check_answer(model, prompt, [[token] for token in answer])
    caught = {place for place, position in enumerate(found) if position.margin_ulp > allowed}
    missed = {place for place, gap in lies.items() if gap > 2 * allowed} - caught
    if missed or caught - set(lies):
        raise ExactnessError("the exactness check failed its own adversary; this is a fault, report it")
    return Power(len(lies), len(caught), len(lies) - len(caught))


def _lying_answer(
    model: nn.Module, prompt: Sequence[int], *, tokens: int, seed: int
) -> tuple[list[int], dict[int, float]]:
    """Return the answer, and by place of each lie how many ULPs the emitted runner-up was below the best token."""
    state = TargetState(model)
    lying = generator(seed, "adversary", 0).random(tokens) < 0.25
    logits, answer, lies = state.prefill(mx.array(list(prompt), dtype=mx.int32)), [], {}
    for place, lie in enumerate(lying.tolist()):
        best = _positions(logits[None], [0])[0]
        answer.append(best.runner_up if lie else best.argmax)
        if lie:
            lies[place] = best.runner_up_ulp
        logits = state.run_block(mx.array(answer[-1:], dtype=mx.int32))[-1]
        state.commit(1)
    return answer, lies
