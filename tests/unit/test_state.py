"""The target's state: after every commit it equals that of a fresh forward over the committed tokens."""

import mlx.core as mx
import numpy as np
import pytest

from draftledger.errors import UnsupportedError
from draftledger.models.state import TargetState
from targets import dense, hybrid, prompt

TARGETS = {"hybrid": hybrid, "dense": dense}


def continuation(state: TargetState) -> np.ndarray:
    probe = mx.array([5, 17, 3], dtype=mx.int32)
    logits = np.array(state.run_block(probe))
    state.rollback()
    return logits


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kept", range(1, 7))
def test_a_partial_commit_equals_a_fresh_pass(target, kept):
    model, ids, block = TARGETS[target](), prompt(7), prompt(6, key=9)
    state = TargetState(model)
    state.prefill(ids)
    mx.eval(state.run_block(block))
    state.commit(kept)
    fresh = TargetState(model)
    fresh.prefill(mx.concatenate([ids, block[:kept]]))
    assert state.length == fresh.length == 7 + kept
    np.testing.assert_allclose(continuation(state), continuation(fresh), atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_rollback_leaves_every_bit_as_it_was(target):
    state = TargetState(TARGETS[target]())
    state.prefill(prompt(7))
    before = continuation(state)
    mx.eval(state.run_block(prompt(6, key=9)))
    state.rollback()
    assert (continuation(state) == before).all()


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_fork_runs_never_reaches_the_state(target):
    state = TargetState(TARGETS[target]())
    state.prefill(prompt(7))
    before = continuation(state)
    twin = state.fork()
    assert (continuation(twin) == before).all()
    mx.eval(twin.run_block(prompt(6, key=9)))
    twin.commit(6)
    assert twin.length == state.length + 6
    assert (continuation(state) == before).all()


def test_only_a_recurrent_target_replays_and_only_on_partial_acceptance():
    for model, expected in ((hybrid(), 1), (dense(), 0)):
        state = TargetState(model)
        state.prefill(prompt(7))
        state.run_block(prompt(4, key=2))
        state.commit(4)
        state.run_block(prompt(4, key=3))
        state.commit(2)
        assert state.replays == expected


def test_misuse_and_unknown_caches_are_refused_in_one_line():
    state = TargetState(dense())
    with pytest.raises(UnsupportedError, match="run_block comes before"):
        state.commit(1)

    class Sliding:
        layers = ()

        def make_cache(self):
            from mlx_lm.models.cache import RotatingKVCache

            return [RotatingKVCache(max_size=4)]

    with pytest.raises(UnsupportedError, match="RotatingKVCache"):
        TargetState(Sliding())
