"""The exactness check: it passes every honest answer and refuses every other one."""

from dataclasses import replace
from functools import cache

import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.decoding.loop import Limits, decode
from draftledger.drafters.ar import Silent
from draftledger.drafters.block_lora import BlockLora
from draftledger.drafters.lookup import Lookup
from draftledger.drafters.oracle import Oracle
from draftledger.measurement.exactness import (
    ExactnessError,
    Position,
    adversary,
    check_answer,
    require_exact,
)
from draftledger.models.state import TargetState
from targets import VOCABULARY, Fixed, dense, greedy, hybrid, prompt
from teachers import noisy_adapter

TARGETS = {"hybrid": hybrid, "dense": dense}
COUNT, K = 20, 3
IDS = prompt(8, key=2)
LIMITS = Limits(COUNT, frozenset())
DRAFTERS = {
    "ar": lambda state, answer: Silent(),
    "lookup": lambda state, answer: Lookup(IDS.tolist(), ngram=1),
    "oracle": lambda state, answer: Oracle(answer),
    "half oracle": lambda state, answer: Oracle(answer, corruption=0.4, vocabulary=VOCABULARY, noise=4),
    "block_lora": lambda state, answer: BlockLora(state, noisy_adapter(state.model), noise=3, bound=VOCABULARY),
    "untrained": lambda state, answer: BlockLora(state, None, noise=3, bound=VOCABULARY),
}


@cache
def answer_of(target: str) -> tuple[int, ...]:
    return tuple(greedy(TARGETS[target](), IDS, COUNT))


def rounds_of(state: TargetState, drafter: str = "half oracle") -> list[tuple[int, ...]]:
    target = next(name for name in TARGETS if TARGETS[name]() is state.model)
    made = DRAFTERS[drafter](state, answer_of(target))
    return [result.committed for result in decode(state, made, IDS, k=K, limits=LIMITS)]


def check(model: nn.Module, rounds, *, allowed: float = 0.0) -> list[Position]:
    found = check_answer(model, IDS.tolist(), rounds)
    require_exact(found, allowed=allowed, where="here")
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_arm_passes_with_margin_zero_at_every_token(target, drafter):
    rounds = rounds_of(TargetState(TARGETS[target]()), drafter)
    found = check(TARGETS[target](), rounds)
    assert [position.token for position in found] == [token for tokens in rounds for token in tokens]
    assert len(found) == COUNT
    assert {position.margin_ulp for position in found} == {0.0}
    assert all(position.token == position.argmax != position.runner_up for position in found)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(TARGETS)), st.integers(0, COUNT - 1), st.integers(1, VOCABULARY - 1))
def test_any_replaced_token_is_caught_where_it_stands(target, place, shift):
    model = TARGETS[target]()
    rounds = [[token] for token in answer_of(target)]
    rounds[place] = [(rounds[place][0] + shift) % VOCABULARY]
    with pytest.raises(
        ExactnessError, match=rf"here, position {place}: token {rounds[place][0]} lies \d+ ULP from what"
    ):
        check(model, rounds)


@pytest.mark.parametrize("target", TARGETS)
def test_a_replaced_token_inside_a_block_is_caught(target):
    model = TARGETS[target]()
    rounds = [list(tokens) for tokens in rounds_of(TargetState(model), "oracle")]
    for number, tokens in enumerate(rounds[:3]):
        for place in range(len(tokens)):
            lie = [list(t) for t in rounds]
            lie[number][place] = (tokens[place] + 1) % VOCABULARY
            with pytest.raises(ExactnessError, match=f"position {sum(map(len, rounds[:number])) + place}:"):
                check(model, lie)


class LeavesOne(TargetState):
    """Rolls back one token too few."""

    def rollback(self) -> None:
        ids = self._open_block()
        super().rollback()
        self.run_block(ids[-1:])
        self.commit(1)


class KeepsOneMore(TargetState):
    """Commits one token of the block too many where it can."""

    def commit(self, count: int) -> None:
        super().commit(min(count + 1, self._open_block().size))


class KeepsOneLess(TargetState):
    """Commits one token too few where it can."""

    def commit(self, count: int) -> None:
        super().commit(max(count - 1, 1))


class KeepsWholeOnly(TargetState):
    """Forgets every block that is kept in part."""

    def commit(self, count: int) -> None:
        if count < self._open_block().size:
            self.rollback()
        else:
            super().commit(count)


BROKEN = [LeavesOne, KeepsOneMore, KeepsOneLess, KeepsWholeOnly]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("broken", BROKEN)
def test_what_a_broken_state_emits_is_refused(target, broken):
    model = TARGETS[target]()
    rounds = rounds_of(broken(model), "block_lora" if broken is LeavesOne else "half oracle")
    with pytest.raises(ExactnessError, match="not lossless"):
        check(model, rounds, allowed=4.0)


@given(st.floats(-(2.0**60), 2.0**60, width=32).filter(lambda x: abs(x) > 2.0**-60), st.integers(1, 50))
def test_margins_are_counted_in_the_spacing_of_the_maximum(top, steps):
    top = np.float32(top)
    below = np.float32(top - steps * np.spacing(np.abs(top)))
    far = np.float32(below - abs(below))
    model = Fixed(np.array([[top, below, far]] * 3, dtype=np.float32))
    first, second = (check_answer(model, [2], [[token]])[0] for token in (0, 1))
    assert (first.margin_ulp, first.argmax, first.runner_up) == (0.0, 0, 1)
    expected = float((top - below) / np.spacing(np.abs(top)))
    assert first.runner_up_ulp == second.margin_ulp == expected
    assert expected == pytest.approx(steps, abs=1)
    require_exact([second], allowed=expected, where="here")
    with pytest.raises(ExactnessError, match="allowed"):
        require_exact([second], allowed=expected - 0.5, where="here")


def test_a_tie_is_exact_whichever_token_is_emitted():
    model = Fixed(np.array([[1.0, 3.0, 3.0]] * 3, dtype=np.float32))
    for token in (1, 2):
        position = check_answer(model, [0], [[token]])[0]
        assert (position.argmax, position.margin_ulp, position.runner_up_ulp) == (1, 0.0, 0.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_refused(bad):
    position = Position(token=1, argmax=0, margin_ulp=bad, runner_up=1, runner_up_ulp=bad)
    with pytest.raises(ExactnessError):
        require_exact([position], allowed=1.0, where="here")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("allowed", [0.0, 1.0])
def test_the_adversary_is_caught_at_every_forced_token(target, allowed):
    power = adversary(TARGETS[target](), IDS.tolist(), tokens=40, allowed=allowed, seed=0)
    assert 4 <= power.forced <= 20
    assert (power.caught, power.ties) == (power.forced, 0)


def test_ties_are_counted_apart_from_what_the_adversary_should_have_been_caught_at():
    model = Fixed(np.array([[1.0, 3.0, 3.0]] * 3, dtype=np.float32))
    power = adversary(model, [0], tokens=40, allowed=0.0, seed=0)
    assert power.forced == power.ties > 0
    assert power.caught == 0


def test_a_check_that_lets_a_lie_pass_fails_its_adversary(monkeypatch):
    def blind(model, ids, rounds):
        return [replace(position, margin_ulp=0.0) for position in check_answer(model, ids, rounds)]

    monkeypatch.setattr("draftledger.measurement.exactness.check_answer", blind)
    with pytest.raises(ExactnessError, match="its own adversary"):
        adversary(dense(), IDS.tolist(), tokens=20, allowed=0.0, seed=0)


@pytest.mark.parametrize("target", ["hybrid", "dense"])
def test_rows_read_at_the_verified_width_are_those_of_the_committed_one(target):
    model, ids = TARGETS[target](), prompt(12, key=1)
    answer = greedy(model, ids, 24)
    drafter = Oracle(answer, corruption=0.5, vocabulary=VOCABULARY, noise=7)
    rounds = list(decode(TargetState(model), drafter, ids, k=4, limits=Limits(24, frozenset())))
    committed = [result.committed for result in rounds]
    narrow = check_answer(model, ids.tolist(), committed)
    wide = check_answer(model, ids.tolist(), committed, drafts=[result.draft for result in rounds])
    assert [position.token for position in wide] == answer
    assert all(position.margin_ulp == 0 for position in (*narrow, *wide))
