"""Twins of recurrent layers: mlx-lm's function, and the state after any committed prefix without another forward."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, make_prompt_cache

from draftledger.decoding.loop import Limits, decode
from draftledger.drafters.oracle import Oracle
from draftledger.models.exact import exact, plain
from draftledger.models.recurrent import Recurrent
from draftledger.models.recurrent_cache import RecurrentCache
from draftledger.models.state import TargetState
from hybrids import RECURRENT, recurrent
from targets import VOCABULARY, dense, greedy, prompt

COUNT, BLOCK = 24, 6


def ids(length: int, key: int) -> mx.array:
    return prompt(length, key)


def far(one: mx.array, other: mx.array) -> float:
    """The largest difference, relative to the largest element."""
    found, wanted = (np.array(array.astype(mx.float32)) for array in (one, other))
    return float(np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max()))


def through(model: nn.Module, tokens: mx.array) -> TargetState:
    """A state that has seen tokens and nothing else."""
    state = TargetState(model)
    state.prefill(tokens)
    return state


def recurrent_part(cache: Any) -> ArraysCache | None:
    """The recurrent one of a layer's caches."""
    return next((part for part in getattr(cache, "caches", [cache]) if isinstance(part, ArraysCache)), None)


def states(state: TargetState) -> list[mx.array]:
    """The recurrent layers' states."""
    found = [array for cache in map(recurrent_part, state.caches) if cache for array in cache.cache]
    assert found
    return found


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_twins_layers_are_the_models(kind):
    """Each maps what mlx-lm's does, over one cache as over none, with the same arrays under the same names."""
    model = recurrent(kind)
    twin, theirs = exact(model), dict(model.named_modules())
    layers = {path: module for path, module in twin.named_modules() if isinstance(module, Recurrent)}
    assert layers
    shared = zip(tree_flatten(twin.parameters()), tree_flatten(model.parameters()), strict=True)
    assert all(name == other and one is two for (name, one), (other, two) in shared)
    for path, layer in layers.items():
        size = len(next(cache for cache in map(recurrent_part, make_prompt_cache(model)) if cache).cache)
        ours, plainly = ArraysCache(size), ArraysCache(size)
        for width in (40, 1, 2, 9):
            x = mx.random.normal((2, width, 32), key=mx.random.key(width))
            assert far(layer(x, mask=None, cache=None), theirs[path](x, mask=None, cache=None)) <= 2e-5
            assert far(layer(x, mask=None, cache=ours), theirs[path](x, mask=None, cache=plainly)) <= 2e-5
        for slot in range(size):
            assert far(ours[slot], plainly[slot]) <= 2e-5


@pytest.mark.parametrize("kind", RECURRENT)
def test_any_prefix_is_committed_without_another_forward(kind):
    """After commits of 0, 1, all but one, and all tokens the state is that of a fresh one over the same tokens."""
    model, committed = exact(recurrent(kind)), ids(9, 1)
    state = through(model, committed)
    for number, count in enumerate([2, 0, BLOCK - 1, 1, BLOCK, 3]):
        block = ids(BLOCK, 10 + number)
        state.run_block(block)
        state.rollback()
        logits = state.run_block(block)
        fresh = through(model, committed)
        assert far(logits, fresh.run_block(block)) <= 1e-4
        state.commit(count)
        committed = mx.concatenate([committed, block[:count]])
    assert state.replays == 0
    assert state.length == committed.size
    fresh = through(model, committed)
    for one, other in zip(states(state), states(fresh), strict=True):
        assert far(one, other) <= 1e-4
    assert far(state.run_block(ids(BLOCK, 9)), fresh.run_block(ids(BLOCK, 9))) <= 1e-4


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_fork_leaves_its_parent_alone(kind):
    state = through(exact(recurrent(kind)), ids(9, 1))
    before = [np.array(array) for array in state.arrays()]
    twin = state.fork()
    twin.run_block(ids(BLOCK, 2))
    twin.commit(3)
    assert (state.length, twin.length) == (9, 12)
    for one, other in zip(state.arrays(), before, strict=True):
        assert np.array_equal(np.array(one), other)


def test_twins_are_made_once_and_unmade():
    model = recurrent("qwen3_5")
    twin = exact(model)
    assert exact(twin) is twin
    back = plain(twin)
    for (name, one), (other, two) in zip(back.named_modules(), model.named_modules(), strict=True):
        assert name == other
        assert type(one) is type(two)
    assert exact(dense()) is dense()
    assert plain(dense()) is dense()


def test_layers_of_another_class_are_run_again():
    """A layer that notes nothing costs a forward over the kept tokens, and the answer is the same."""
    model, asked = recurrent("qwen3_5"), ids(12, 3)
    answer = greedy(exact(model), asked, COUNT)
    state = TargetState(model)
    drafter = Oracle(tuple(answer), corruption=0.5, vocabulary=VOCABULARY, noise=4)
    rounds = list(decode(state, drafter, asked, k=4, limits=Limits(COUNT, frozenset())))
    assert [token for result in rounds for token in result.committed] == answer
    assert state.replays > 0


def test_a_quantised_hybrid_has_a_twin():
    model = plain(exact(recurrent("lfm2")))
    nn.quantize(model, group_size=32, bits=8, class_predicate=lambda path, module: isinstance(module, nn.Linear))
    assert far(exact(model)(ids(9, 1)[None]), model(ids(9, 1)[None])) <= 2e-5


def test_notes_outside_a_block_and_of_some_states_alone_are_no_way_back():
    cache = RecurrentCache(2)
    assert isinstance(cache, ArraysCache)
    cache[0], cache[1] = mx.zeros(1), mx.ones(1)
    cache.note(0, lambda count: mx.full(1, count))
    cache.begin(4)
    cache[0], cache[1] = mx.full(1, 9.0), mx.full(1, 9.0)
    cache.note(0, lambda count: mx.full(1, count))
    assert not cache.commit(2)
    assert [array.item() for array in cache.arrays()] == [0, 1]
