"""Training blocks: what a noise row computes in training is what it computes in decoding, and nothing leaks."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftledger.drafters.block_lora import BlockLora, gated
from draftledger.errors import ConfigError
from draftledger.models.state import TargetState
from draftledger.rng import noise_ids
from draftledger.training.block_lora import build
from draftledger.training.blocks import BlockCache, clean_caches, fresh, sample_anchors
from targets import VOCABULARY, dense, hybrid
from teachers import MODULES, noisy_adapter, noisy_weights, tokens, windows

TARGETS = {"hybrid": hybrid, "dense": dense, "tied": lambda: dense(True)}
BATCH, LENGTH, K = 2, 20, 3
ANCHORS = [0, 1, 4, 5, 11, 16]


def noise(key: int = 5) -> mx.array:
    return noise_ids(key, 0, shape=(BATCH * len(ANCHORS), K), bound=VOCABULARY)


def trained_rows(model, clean: np.ndarray, block_noise: mx.array) -> np.ndarray:
    """The logits [B·M, k, V] that training sees."""
    caches = clean_caches(model, mx.array(clean), ANCHORS)
    twin = gated(model, noisy_weights(model), scale=1.0, first=0)
    return np.array(twin(block_noise, cache=fresh(caches)))


def served_rows(model, clean: np.ndarray, anchor: int, block_noise: mx.array) -> np.ndarray:
    """The logits [k, V] of the draft pass that decoding runs after the tokens before the anchor were committed."""
    state = TargetState(model)
    if anchor:
        state.prefill(mx.array(clean[:anchor]))
    drafter = BlockLora(state, noisy_adapter(model), noise=0, bound=VOCABULARY)
    ids = mx.concatenate([mx.array(clean[anchor : anchor + 1]), block_noise])
    return np.array(state.run_block(ids, model=drafter.model))[1:]


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_in_training_is_the_row_in_decoding(target):
    model, clean = TARGETS[target](), tokens(BATCH, LENGTH)
    trained = trained_rows(model, clean, noise())
    bare = np.array(model(noise(), cache=fresh(clean_caches(model, mx.array(clean), ANCHORS))))
    assert (np.abs(trained - bare).max(axis=-1) > 1e-3).all()  # the adapter does something
    for place, (window, anchor) in enumerate((w, a) for w in range(BATCH) for a in ANCHORS):
        served = served_rows(model, clean[window], anchor, noise()[place])
        np.testing.assert_allclose(trained[place], served, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_in_decoding_is_the_same_after_partial_acceptance(target):
    model, clean, place = TARGETS[target](), tokens(BATCH, LENGTH), ANCHORS.index(11)
    state = TargetState(model)
    state.prefill(mx.array(clean[0, :6]))
    state.run_block(mx.array([*clean[0, 6:9].tolist(), 1, 2]))
    state.commit(3)
    state.run_block(mx.array(clean[0, 9:11]))
    state.commit(2)
    ids = mx.concatenate([mx.array(clean[0, 11:12]), noise()[place]])
    twin = gated(model, noisy_weights(model), scale=1.0, first=1)
    served = np.array(state.run_block(ids, model=twin))[1:]
    np.testing.assert_allclose(trained_rows(model, clean, noise())[place], served, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_do_not_see_each_other(target):
    model, clean, changed = TARGETS[target](), tokens(BATCH, LENGTH), 3
    other = np.array(noise())
    other[changed] = (other[changed] + 7) % VOCABULARY
    one, two = (trained_rows(model, clean, mx.array(n)) for n in (np.array(noise()), other))
    same = (one == two).all(axis=(1, 2))
    assert np.flatnonzero(~same).tolist() == [changed]


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_a_block_are_causal(target):
    model, clean = TARGETS[target](), tokens(BATCH, LENGTH)
    other = np.array(noise())
    other[:, -1] = (other[:, -1] + 7) % VOCABULARY
    one, two = (trained_rows(model, clean, mx.array(n)) for n in (np.array(noise()), other))
    assert (one[:, :-1] == two[:, :-1]).all()
    assert (one[:, -1] != two[:, -1]).any(axis=-1).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("anchor", [4, 16])
def test_tokens_after_the_anchor_do_not_matter_and_the_anchor_does(target, anchor):
    model, clean = TARGETS[target](), tokens(BATCH, LENGTH)
    before = [place for place, a in enumerate(ANCHORS * BATCH) if a <= anchor]
    after = [place for place, a in enumerate(ANCHORS * BATCH) if a > anchor]
    later, touched = clean.copy(), clean.copy()
    later[:, anchor + 1 :] = (later[:, anchor + 1 :] + 5) % VOCABULARY
    touched[:, anchor] = (touched[:, anchor] + 5) % VOCABULARY
    one, two, three = (trained_rows(model, x, noise()) for x in (clean, later, touched))
    assert (one[before] == two[before]).all()
    assert all((one[place] != two[place]).any() for place in after)
    own = [place for place in before if (ANCHORS * BATCH)[place] == anchor]
    assert all((one[place] != three[place]).any() for place in own)


@pytest.mark.parametrize("target", TARGETS)
def test_fresh_protects_the_forked_caches(target):
    model = TARGETS[target]()
    caches = clean_caches(model, mx.array(tokens(BATCH, LENGTH)), ANCHORS)
    first, second = (np.array(model(noise(), cache=fresh(caches))) for _ in range(2))
    assert (first == second).all()


@given(st.integers(2, 60), st.integers(1, 8), st.data())
def test_anchors_are_distinct_sorted_and_leave_room(length, k, data):
    room = length - k
    count = data.draw(st.integers(1, max(1, room)))
    if room < 1:
        with pytest.raises(ConfigError, match="do not fit"):
            sample_anchors(1, "s", 0, count=count, length=length, k=k)
        return
    drawn = sample_anchors(1, "s", data.draw(st.integers(0, 99)), count=count, length=length, k=k)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == count
    assert drawn[0] >= 0
    assert drawn[-1] + k <= length - 1  # the last noise row still has a teacher


def test_anchors_depend_on_seed_stream_and_step_and_reach_every_place():
    draw = {
        (s, n, t): tuple(sample_anchors(s, n, t, count=4, length=30, k=3)) for s in (1, 2) for n in "ab" for t in (0, 1)
    }
    assert len(set(draw.values())) == len(draw)
    seen = {a for t in range(200) for a in sample_anchors(1, "s", t, count=2, length=12, k=3)}
    assert seen == set(range(9))


def test_too_many_anchors_and_sliding_windows_are_refused():
    with pytest.raises(ConfigError, match="lower them"):
        sample_anchors(1, "s", 0, count=10, length=12, k=3)
    cache = BlockCache(mx.zeros((1, 1, 2, 4)), mx.zeros((1, 1, 2, 4)), mx.array([1]))
    with pytest.raises(ConfigError, match="sliding-window"):
        cache.make_mask(2, window_size=4)


@pytest.mark.parametrize("target", TARGETS)
def test_the_objective_pairs_each_noise_row_with_the_teacher_at_its_place(target):
    model, spec = (
        TARGETS[target](),
        {"k": K, "anchors": 4, "batch": 2, "noise_bound": VOCABULARY, "teacher": "true_teacher"},
    )
    split = windows(model, count=2, length=LENGTH)
    goal = build(model, windows={"train": split, "validation": split}, spec=spec | {"modules": MODULES}, seed=3)
    batch = goal.batch(0)
    anchors = sample_anchors(3, "anchors/train", 0, count=4, length=LENGTH, k=K)
    logits = np.array(model(mx.array(split.tokens)))
    rows = np.array(batch.rows.ids).reshape(2, 4, K, -1)[..., 0]
    expected = np.array([[logits[w, a + 1 : a + 1 + K].argmax(axis=-1) for a in anchors] for w in range(2)])
    assert sorted(rows.tolist()) == sorted(expected.tolist())  # the epoch's order may swap the windows
