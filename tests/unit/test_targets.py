"""Every kind of target: speculation emits the autoregressive answer, whatever is drafted and wherever it ends."""

from collections.abc import Iterator
from functools import cache, partial
from itertools import product

import mlx.core as mx
import mlx.nn as nn
import pytest

from draftledger.decoding.loop import Limits, Round, decode
from draftledger.drafters.oracle import Oracle
from draftledger.models.exact import exact
from draftledger.models.state import TargetState
from hybrids import RECURRENT, recurrent
from states import close, continuation, same_contents
from targets import ATTENTION, VOCABULARY, attention, dense, greedy, hybrid, naive, prompt, quantised

COUNT = 18
FORWARD_ONLY = {"dense": dense, "tied": partial(dense, True), "quantised": quantised}
FORWARD_ONLY |= {kind: partial(attention, kind) for kind in ATTENTION}
TWINS = {"tiny": lambda: exact(hybrid()), **{kind: lambda kind=kind: exact(recurrent(kind)) for kind in RECURRENT}}
TARGETS = {**FORWARD_ONLY, **TWINS}


@cache
def known(kind: str) -> tuple[nn.Module, mx.array, tuple[int, ...]]:
    """A target, a prompt, and the answer by forwards over all tokens without a cache, unless the cache rounds."""
    model, ids = TARGETS[kind](), prompt(12, key=1)
    return model, ids, tuple((greedy if kind == "quantised" else naive)(model, ids, COUNT))


def rounds_of(
    state: TargetState, ids: mx.array, answer: tuple[int, ...], *, rate: float, k: int, eos: int = -1
) -> Iterator[Round]:
    drafter = Oracle(answer, corruption=rate, vocabulary=VOCABULARY, noise=7)
    return decode(state, drafter, ids, k=k, limits=Limits(COUNT, frozenset({eos})))


def emitted(rounds: list[Round]) -> tuple[int, ...]:
    return tuple(token for result in rounds for token in result.committed)


@pytest.mark.parametrize("kind", TARGETS)
def test_it_answers_alike_at_any_corruption_and_width(kind):
    """Windows and chunks are passed more than once; the whole block is the longest draft that is offered."""
    model, ids, answer = known(kind)
    assert len(set(answer)) >= 6
    seen = set()
    for rate, k in product((0.0, 0.2, 0.5, 1.0), (1, 2, 0)):
        state = TargetState(model)
        rounds = list(rounds_of(state, ids, answer, rate=rate, k=k))
        assert emitted(rounds) == answer, (rate, k)
        assert state.replays == 0
        seen |= {(result.accepted, len(result.draft)) for result in rounds[1:-1]}
    assert any(kept == 0 < drafted for kept, drafted in seen)
    assert any(0 < kept < drafted for kept, drafted in seen)
    assert any(0 < kept == drafted for kept, drafted in seen)


@pytest.mark.parametrize("kind", TARGETS)
def test_an_end_token_ends_it_at_every_index(kind):
    model, ids, answer = known(kind)
    firsts = sorted({answer.index(token) for token in answer})
    assert len(firsts) >= 6
    for place in firsts:
        rounds = list(rounds_of(TargetState(model), ids, answer, rate=0.2, k=0, eos=answer[place]))
        assert emitted(rounds) == answer[: place + 1]
        assert [result.stop for result in rounds] == [None] * (len(rounds) - 1) + ["eos"]


@pytest.mark.parametrize("kind", sorted(set(TARGETS) - {"quantised"}))
def test_after_every_round_its_state_is_that_of_a_fresh_forward(kind):
    """Over the prompt and what was committed but the new anchor, by contents and by the logits of what follows."""
    model, ids, answer = known(kind)
    state, tokens = TargetState(model), ids
    for result in rounds_of(state, ids, answer, rate=0.5, k=5):
        if result.stop:
            break
        tokens = mx.concatenate([tokens, mx.array(result.committed, dtype=mx.int32)])
        fresh = TargetState(model)
        fresh.prefill(tokens[:-1])
        assert state.length == fresh.length == tokens.size - 1
        assert same_contents(state, fresh, 4, 1e-4)
        assert close(continuation(state.fork()), continuation(fresh), 1e-4)
    assert tokens.size > ids.size + 8
