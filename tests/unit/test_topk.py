"""The cached teacher: exact probabilities of the kept ids, an exact tail, and bounds that hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from draftledger.teacher.topk import TopK, acceptance_bounds, encode, log_softmax

SIZES = st.tuples(st.integers(1, 3), st.integers(1, 40))
PLAIN = hnp.arrays(np.float32, SIZES, elements=st.floats(-30, 30, width=32))
TIED = hnp.arrays(np.float32, SIZES, elements=st.integers(-2, 2).map(float))


def softmax(logits: np.ndarray) -> np.ndarray:
    """The whole distribution in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True)


def kept(p: np.ndarray, top: TopK) -> np.ndarray:
    return np.take_along_axis(p, top.ids.astype(np.int64), axis=-1)


@given(st.one_of(PLAIN, TIED), st.integers(1, 50))
def test_the_kept_ids_are_the_first_k_by_logit_then_id(logits, k):
    top = encode(logits, k)
    count = min(k, logits.shape[-1])
    for row, ids, values in zip(logits, top.ids, top.logits, strict=True):
        expected = sorted(range(row.size), key=lambda i: (-row[i], i))[:count]
        assert ids.tolist() == expected
        assert values.tolist() == row[expected].tolist()


@given(st.one_of(PLAIN, TIED), st.integers(1, 50))
def test_kept_probabilities_and_tail_are_those_of_the_whole_softmax(logits, k):
    top, p = encode(logits, k), softmax(logits)
    np.testing.assert_allclose(np.exp(top.log_p), kept(p, top), rtol=3e-5)
    np.testing.assert_allclose(top.tail, 1 - kept(p, top).sum(axis=-1), atol=1e-7)
    assert top.ids.dtype == np.uint32
    assert {top.logits.dtype, top.lse.dtype, top.tail.dtype} == {np.dtype(np.float32)}


def test_the_tail_is_exact_where_float32_sums_are_not():
    logits = np.zeros((1, 50_000), dtype=np.float32)
    logits[0, :4] = 20.0
    expected = (50_000 - 4) / (50_000 - 4 + 4 * np.exp(20.0))
    np.testing.assert_allclose(encode(logits, 4).tail, [expected], rtol=1e-6)


@given(PLAIN, st.integers(1, 50))
def test_renormalising_would_move_the_teacher_by_its_tail(logits, k):
    top, p = encode(logits, k), softmax(logits)
    moved = np.zeros_like(p)
    share = kept(p, top)
    np.put_along_axis(moved, top.ids.astype(np.int64), share / share.sum(axis=-1, keepdims=True), axis=-1)
    np.testing.assert_allclose(np.abs(moved - p).sum(axis=-1) / 2, top.tail, atol=1e-6)


@given(st.data(), SIZES, st.integers(1, 50))
def test_the_bounds_hold_the_dense_acceptance_and_close_when_everything_is_kept(data, shape, k):
    values = hnp.arrays(np.float32, shape, elements=st.floats(-15, 15, width=32))
    teacher, student = data.draw(values), data.draw(values)
    p, q = softmax(teacher), softmax(student)
    dense = np.minimum(p, q).sum(axis=-1)
    top = encode(teacher, k)
    low, high = acceptance_bounds(top, log_softmax(student))
    assert (low <= dense + 1e-5).all()
    assert (dense <= high + 1e-5).all()
    sigma = 1 - kept(q, top).sum(axis=-1)
    np.testing.assert_allclose(high - low, np.minimum(top.tail, np.maximum(sigma, 0)), atol=1e-5)
    if k >= shape[-1]:
        np.testing.assert_allclose(low, high, atol=1e-5)


@given(PLAIN)
def test_log_softmax_is_that_of_float64(logits):
    np.testing.assert_allclose(np.exp(log_softmax(logits)), softmax(logits), atol=1e-6)


@pytest.mark.parametrize("k", [7, 8, 1000])
def test_more_than_the_vocabulary_keeps_all_of_it(k):
    logits = np.random.default_rng(0).normal(size=(2, 3, 7)).astype(np.float32)
    top = encode(logits, k)
    assert top.ids.shape == (2, 3, 7)
    assert sorted(top.ids[0, 0].tolist()) == list(range(7))
    np.testing.assert_allclose(top.tail, 0, atol=1e-12)
