"""The cached losses: equal to the dense ones with everything kept, and bounds of them otherwise."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from draftledger.teacher.topk import TopK, encode
from draftledger.training.losses import DENSE, LOSSES

NAMES = sorted(LOSSES)
SHAPES = st.tuples(st.integers(1, 3), st.integers(2, 24))


@st.composite
def pairs(draw):
    """Student and teacher logits [N, V] float32."""
    values = hnp.arrays(np.float32, draw(SHAPES), elements=st.floats(-6, 6, width=32))
    return draw(values), draw(values)


def cached(name: str, student: mx.array, top: TopK) -> mx.array:
    return LOSSES[name](student, mx.array(top.ids.astype(np.int32)), mx.array(top.log_p), mx.array(top.tail))


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def reference(student: np.ndarray, teacher: np.ndarray) -> dict[str, np.ndarray]:
    """The dense losses in float64."""
    p, q = softmax(teacher), softmax(student)
    tv, kl = np.abs(p - q).sum(axis=-1) / 2, (p * np.log(p / q)).sum(axis=-1)
    weight = np.exp(-3 * (1 - tv))
    return {"tv": tv, "kl": kl, "lk": weight * kl + (1 - weight) * tv}


def both_tails(student: np.ndarray, top: TopK) -> tuple[np.ndarray, np.ndarray]:
    return top.tail, 1 - np.take_along_axis(softmax(student), top.ids.astype(np.int64), axis=-1).sum(axis=-1)


@pytest.mark.parametrize("name", NAMES)
@given(pair=pairs())
def test_with_everything_kept_value_and_gradient_are_the_dense_ones(name, pair):
    student, teacher = map(mx.array, pair)
    top = encode(pair[1], pair[1].shape[-1])
    value, slope = mx.value_and_grad(lambda s: cached(name, s, top).sum())(student)
    dense, dense_slope = mx.value_and_grad(lambda s: DENSE[name](s, teacher).sum())(student)
    expected = reference(*pair)[name]
    np.testing.assert_allclose(np.array(cached(name, student, top)), expected, atol=3e-5, rtol=1e-4)
    np.testing.assert_allclose(value.item(), dense.item(), atol=1e-4, rtol=1e-4)
    apart = np.abs(softmax(pair[0]) - softmax(pair[1])) > 1e-5  # |p − q| has no slope where they meet
    if name != "kl" and not apart.all():
        return
    np.testing.assert_allclose(np.array(slope), np.array(dense_slope), atol=1e-4, rtol=1e-3)


@given(pairs(), st.integers(1, 24))
def test_truncated_tv_is_below_the_dense_one_by_at_most_the_smaller_tail(pair, k):
    top = encode(pair[1], k)
    found, dense = np.array(cached("tv", mx.array(pair[0]), top)), reference(*pair)["tv"]
    tau, sigma = both_tails(pair[0], top)
    assert (found <= dense + 1e-5).all()
    assert (dense <= found + np.minimum(tau, sigma) + 1e-5).all()


@given(pairs(), st.integers(1, 24))
def test_truncated_kl_is_the_kl_of_the_lumped_distributions_so_a_lower_bound(pair, k):
    top = encode(pair[1], k)
    found = np.array(cached("kl", mx.array(pair[0]), top))
    p, q = (np.take_along_axis(softmax(x), top.ids.astype(np.int64), axis=-1) for x in pair[::-1])
    tau, sigma = both_tails(pair[0], top)
    lumped = (p * np.log(p / q)).sum(axis=-1)
    if top.ids.shape[-1] < pair[0].shape[-1]:
        lumped += tau * np.log(tau / sigma)
    np.testing.assert_allclose(found, lumped, atol=3e-3)
    assert (found <= reference(*pair)["kl"] + 3e-3).all()


@pytest.mark.parametrize("name", NAMES)
@given(pair=pairs(), k=st.integers(1, 24))
def test_losses_are_not_negative_and_zero_when_equal(name, pair, k):
    student, teacher = pair
    assert (np.array(cached(name, mx.array(student), encode(teacher, k))) >= -1e-5).all()
    assert (np.abs(np.array(cached(name, mx.array(teacher), encode(teacher, k)))) <= 1e-4).all()
    if name == "tv":
        assert (np.array(cached(name, mx.array(student), encode(teacher, k))) <= 1 + 1e-5).all()


def lumped_losses(student: np.ndarray, top: TopK) -> dict[str, np.ndarray]:
    """TV and KL with one tail bucket in float64."""
    p, q = np.exp(top.log_p.astype(np.float64)), np.take_along_axis(softmax(student), top.ids.astype(np.int64), axis=-1)
    p, q = (np.concatenate([x, 1 - x.sum(axis=-1, keepdims=True)], axis=-1) for x in (p, q))
    return {"tv": np.abs(p - q).sum(axis=-1) / 2, "kl": (p * np.log(p / q)).sum(axis=-1)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [3, 8])
def test_gradients_are_finite_differences_and_the_lk_weight_is_held_constant(name, k):
    draws = np.random.default_rng(k)
    student, teacher = (draws.normal(size=(2, 12)) * 2 for _ in range(2))
    top = encode(teacher.astype(np.float32), k)
    weight = np.exp(-3 * (1 - lumped_losses(student, top)["tv"]))

    def value(logits: np.ndarray) -> float:
        losses = lumped_losses(logits, top)
        return float({**losses, "lk": weight * losses["kl"] + (1 - weight) * losses["tv"]}[name].sum())

    slope = np.array(mx.grad(lambda s: cached(name, s, top).sum())(mx.array(student.astype(np.float32))))
    step = 1e-6
    for place in np.ndindex(student.shape):
        moved = np.zeros_like(student)
        moved[place] = step
        expected = (value(student + moved) - value(student - moved)) / (2 * step)
        assert slope[place] == pytest.approx(expected, abs=2e-5)


def test_a_student_that_is_sure_of_the_wrong_token_has_finite_losses_and_gradients():
    student = mx.array([[200.0, -200.0, -200.0, -200.0]])
    top = encode(np.array([[0.0, 5.0, 1.0, 0.0]], dtype=np.float32), 2)
    for name in NAMES:
        value, slope = mx.value_and_grad(lambda s, name=name: cached(name, s, top).sum())(student)
        assert np.isfinite(value.item())
        assert np.isfinite(np.array(slope)).all()
    assert cached("tv", student, top).item() == pytest.approx(1 - top.tail.item(), abs=1e-5)
