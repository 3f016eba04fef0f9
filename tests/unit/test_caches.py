"""Exact caches hold, after any committed prefix, rollback and fork, the rows that each next token sees and no other."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import (
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
    trim_prompt_cache,
)

from draftledger.errors import UnsupportedError
from draftledger.models.caches import exact_cache, exact_caches
from targets import ATTENTION, attention

WINDOW, KEEP, CHUNK = 5, 2, 6
SPARE = 4  # rows that a window's buffer has to spare here, so that it is often made anew
KINDS = {
    "all": KVCache,
    "window": lambda: RotatingKVCache(WINDOW),
    "window of one": lambda: RotatingKVCache(1),
    "window and first": lambda: RotatingKVCache(WINDOW, keep=KEEP),
    "chunk": lambda: ChunkedKVCache(CHUNK),
}
SEES = {
    "all": lambda token, row: True,
    "window": lambda token, row: token - row < WINDOW,
    "window of one": lambda token, row: token == row,
    "window and first": lambda token, row: token - row < WINDOW - KEEP or row < KEEP,
    "chunk": lambda token, row: token // CHUNK == row // CHUNK,
}
# How wide a block is, and how much of it is kept: null rolls it back, and a fork runs it where that is asked for.
BLOCKS = st.lists(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.none() | st.integers(0, n), st.booleans())),
    max_size=20,
)


def exact(kind: str):
    cache = exact_cache(KINDS[kind]())
    cache.step = SPARE
    return cache


def run(cache, labels: list[tuple[int, int]]) -> list[set[tuple[int, int]]]:
    """Run a block whose row of each token says (position, writing), and tell what each of its tokens sees."""
    width = len(labels)
    chunked = isinstance(cache, ChunkedKVCache)
    if chunked:
        cache.maybe_trim_front()
        start = cache.start_position
    else:
        mask = cache.make_mask(width, return_array=False, window_size=None)
    rows = mx.array(labels, dtype=mx.float32)[None, None]
    keys, values = cache.update_and_fetch(rows, -rows)
    assert mx.array_equal(keys, -values)
    held = [(int(position), int(writing)) for position, writing in np.array(keys[0, 0])]
    if chunked:
        end = cache.offset
        mask = np.array([[SEES["chunk"](t, r) and r <= t for r in range(start, end)] for t in range(end - width, end)])
    elif mask is None:
        mask = np.ones((width, len(held)), dtype=bool)
    elif isinstance(mask, str):
        mask = np.tri(width, len(held), len(held) - width, dtype=bool)
    return [{label for label, seen in zip(held, row, strict=True) if seen} for row in np.array(mask)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), BLOCKS)
def test_each_token_sees_the_committed_rows_of_its_window_and_nothing_else(kind, prompt, blocks):
    cache, committed = exact(kind), []
    for writing, (width, kept, forked) in enumerate([(prompt, prompt, False), *blocks]):
        labels = [(len(committed) + place, writing) for place in range(width)]
        runner = cache.fork() if forked else cache
        runner.step = SPARE
        runner.begin(width)
        seen = run(runner, labels)
        for place, (token, _) in enumerate(labels):
            visible = [*committed, *labels[: place + 1]]
            assert seen[place] == {label for label in visible if SEES[kind](token, label[0])}
        if kept is None:
            runner.rollback()
        else:
            assert runner.commit(kept)
            committed += [] if forked else labels[:kept]
        assert cache.offset == len(committed)


@pytest.mark.parametrize(("kind", "bound"), [("window", WINDOW), ("window and first", WINDOW), ("chunk", CHUNK)])
def test_memory_is_bounded_and_a_buffer_is_not_made_anew_every_round(kind, bound):
    cache, made, width = exact(kind), 0, 3
    for position in range(100):
        start = cache.start
        cache.begin(width)
        run(cache, [(position + place, 0) for place in range(width)])
        cache.commit(1)
        made += cache.start != start
        assert cache.keys.shape[2] <= bound + width + SPARE
    assert made <= 100 // SPARE + 1


def test_quantised_rows_are_those_of_mlx_lm_to_the_bit():
    rng = np.random.default_rng(0)
    cache, plain, committed = exact_cache(QuantizedKVCache(32, 8)), QuantizedKVCache(32, 8), []
    for width in rng.integers(1, 90, size=12).tolist():
        kept = int(rng.integers(0, width + 1))
        rows = mx.array(rng.normal(size=(1, 2, width, 32)), dtype=mx.float32)
        cache.begin(width)
        cache.update_and_fetch(rows, -rows)
        cache.commit(kept)
        committed.append(rows[:, :, :kept])
    rows = mx.concatenate(committed, axis=2)
    plain.update_and_fetch(rows, -rows)
    twin = cache.fork()
    assert cache.offset == twin.offset == plain.offset
    for ours, forked, theirs in zip(cache.arrays(), twin.arrays(), [*plain.keys, *plain.values], strict=True):
        assert forked.shape[2] == plain.offset
        assert mx.array_equal(ours[..., : plain.offset, :], theirs[..., : plain.offset, :])
        assert mx.array_equal(forked, theirs[..., : plain.offset, :])


def test_a_list_begins_commits_and_forks_as_one():
    cache = exact_cache(CacheList(KVCache(), RotatingKVCache(WINDOW)))
    rows = mx.ones((1, 1, 4, 2))
    for kept in (4, 2):
        cache.begin(4)
        for part in cache.caches:
            part.update_and_fetch(rows, rows)
        assert cache.commit(kept)
    twin = cache.fork()
    assert [part.offset for part in (*cache.caches, *twin.caches)] == [6] * 4
    assert len(cache.arrays()) == len(twin.arrays()) == 4
    cache.begin(4)
    cache[0].update_and_fetch(rows, rows)
    cache.rollback()
    assert cache[0].offset == twin[0].offset == 6


def test_mlx_lms_own_window_keeps_rejected_rows_once_it_has_wrapped():
    """The reason for these caches: the same rounds on the library's ring, by its own way of trimming."""
    ring, ours = RotatingKVCache(WINDOW), exact("window")
    for cache in (ring, ours):
        run(cache, [(place, 0) for place in range(12)])
    ours.begin(4)
    block = [(12 + place, 1) for place in range(4)]
    assert run(ring, block) == run(ours, block)
    assert trim_prompt_cache([ring], 3) == 0
    ours.commit(1)
    expected = [{*((place, 0) for place in range(9, 12)), (12, 1), (13, 2)}]
    assert run(ours, [(13, 2)]) == expected
    ring.trim(3)  # by force
    assert run(ring, [(13, 2)]) != expected


@pytest.mark.parametrize("kind", ATTENTION)
def test_each_cache_is_still_one_of_mlx_lms_class(kind):
    caches = exact_caches(attention(kind))
    for ours, theirs in zip(caches, make_prompt_cache(attention(kind)), strict=True):
        assert isinstance(ours, type(theirs))
        assert type(ours) is not type(theirs)


@pytest.mark.parametrize("wrap", [lambda cache: cache, lambda cache: CacheList(KVCache(), cache)])
def test_an_unknown_kind_is_refused_in_one_line(wrap):
    with pytest.raises(UnsupportedError, match=r"^ConcatenateKVCache: .* rolled back exactly; use arm `ar`$"):
        exact_cache(wrap(ConcatenateKVCache()))
