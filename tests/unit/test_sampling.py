"""What a token is drawn from, against a plain NumPy reference, and the keyed draws themselves."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftledger.decoding.sampling import COLUMNS, Sampling, distribution, draw, sampling_of, uniforms
from draftledger.errors import ConfigError


def reference(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """One row, token by token in float64: sort by probability and id, and keep while each filter allows."""
    weights = [math.exp((float(x) - float(max(logits))) / sampling.temperature) for x in logits]
    kept = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    if sampling.top_k:
        kept = kept[: sampling.top_k]
    total, mass, nucleus = sum(weights[token] for token in kept), 0.0, []
    for token in kept:
        if mass >= sampling.top_p and sampling.top_p < 1:
            break
        nucleus.append(token)
        mass += weights[token] / total
    kept = [token for token in nucleus if weights[token] >= sampling.min_p * weights[nucleus[0]]]
    total = sum(weights[token] for token in kept)
    return np.array([weights[token] / total if token in kept else 0.0 for token in range(len(weights))])


def settled(p: np.ndarray, sampling: Sampling) -> bool:
    """Whether no filter's edge lies within rounding of a token's probability or of a cumulative one."""
    bare = np.sort(p)[::-1]
    if sampling.top_k:
        bare = bare[: sampling.top_k]
    sums = np.cumsum(bare / bare.sum())
    far = sampling.top_p == 1 or np.abs(sums - sampling.top_p).min() > 1e-5
    return bool(far and np.abs(bare / bare[0] - sampling.min_p).min() > 1e-5)


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.5]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 50]),
    min_p=st.sampled_from([0.0, 0.03, 0.4]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-12, 12), min_size=2, max_size=12), SAMPLINGS)
@example([0, 0, 0, 0], Sampling(1.0, top_k=2))
@example([1, 3, 3, 3], Sampling(1.0, top_p=0.4))
def test_distribution_is_the_references(quarters, sampling):
    logits = np.array(quarters, dtype=np.float32) / 4
    bare = reference(logits, Sampling(sampling.temperature))
    if not settled(bare, sampling):
        return
    found = np.array(distribution(mx.array(logits)[None], sampling))[0]
    expected = reference(logits, sampling)
    assert ((found > 0) == (expected > 0)).all()
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert found.sum() == pytest.approx(1, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.99), st.integers(2, 400))
def test_the_nucleus_reaches_its_mass_and_no_smaller_set_does(key, top_p, size):
    logits = np.random.default_rng(key).normal(size=size).astype(np.float32) * 2
    bare = np.array(distribution(mx.array(logits)[None], Sampling(1.0)))[0].astype(np.float64)
    kept = np.array(distribution(mx.array(logits)[None], Sampling(1.0, top_p=top_p)))[0] > 0
    assert kept.any()
    assert bare[kept].min() >= bare[~kept].max(initial=0)
    assert bare[kept].sum() >= top_p - 1e-5
    assert bare[kept].sum() - bare[kept].min() < top_p + 1e-5


def test_equal_probabilities_are_kept_by_id():
    flat = mx.zeros((2, 7))
    assert (np.array(distribution(flat, Sampling(1.0, top_k=3)))[1] > 0).tolist() == [True] * 3 + [False] * 4
    assert (np.array(distribution(flat, Sampling(1.0, top_p=0.4)))[0] > 0).tolist() == [True] * 3 + [False] * 4


@pytest.mark.parametrize("spread", [1.5, 3.0])
def test_bfloat16_logits_are_filtered_as_their_float32_values(spread):
    """In bfloat16 arithmetic a nucleus of 0.95 over a vocabulary of this size keeps every token."""
    logits = (mx.random.normal((1, 150_000), key=mx.random.key(3)) * spread).astype(mx.bfloat16)
    sampling = Sampling(1.0, top_p=0.95)
    found, wide = distribution(logits, sampling), distribution(logits.astype(mx.float32), sampling)
    assert found.dtype == mx.float32
    assert (np.array(found) == np.array(wide)).all()
    exact = np.array(logits.astype(mx.float32))[0].astype(np.float64)
    p = np.sort(np.exp(exact - exact.max()))[::-1]
    needed = int((np.cumsum(p / p.sum()) - p / p.sum() < 0.95).sum())
    assert int((found > 0).sum().item()) == pytest.approx(needed, abs=300)  # bfloat16 values tie by the hundred
    assert needed < 90_000


def test_extreme_logits_and_temperatures_stay_numbers():
    rows = mx.array([[1e30, -1e30, 0.0], [-math.inf, 2.0, 2.0], [5e4, 4e4, -3e4]])
    for temperature in (1e-6, 1.0, 1e6):
        p = np.array(distribution(rows, Sampling(temperature, top_p=0.9, top_k=2, min_p=0.01)))
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=-1), 1, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any), st.integers(0, 2**48 - 1))
def test_a_draw_is_the_inverse_of_the_cumulative_sum(parts, bits):
    uniform = bits / 2**48
    sums = np.cumsum(np.array(parts) / sum(parts))
    if np.abs(sums - uniform).min() < 1e-6:
        return
    found = draw(mx.array([parts], dtype=mx.float32), np.array([uniform])).item()
    assert found == int((sums <= uniform).sum())


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2.0**-48])
@pytest.mark.parametrize("size", [1, 3, COLUMNS, COLUMNS + 1, 5 * COLUMNS - 3])
def test_what_has_no_weight_is_never_drawn(uniform, size):
    for only in {0, size // 2, size - 1}:
        weights = np.zeros((1, size), np.float32)
        weights[0, only] = 1 / 3
        assert draw(mx.array(weights), np.array([uniform])).item() == only


def test_rare_tokens_keep_their_share():
    """Half of the mass in tokens of 3e-9 each, which a float32 sum over all ids would drop or round by tens of %."""
    size, common = 2**24, 2**23
    uniform = uniforms(Sampling(1.0, seed=1), "test", 0, rows=4)
    weights = np.full((1, size), 0.5 / (size - common), np.float32)
    weights[0, :common] = 0
    weights[0, 0] = 0.5
    for value in uniform:
        found = draw(mx.array(weights), np.array([value])).item()
        expected = 0 if value < 0.5 else common + int((value - 0.5) / 0.5 * (size - common))
        assert abs(found - expected) <= 4


def test_uniforms_are_keyed_by_seed_stream_step_and_row_alone():
    sampling = Sampling(1.0, seed=5)
    six = uniforms(sampling, "verify", 3, rows=6)
    assert (uniforms(sampling, "verify", 3, rows=2) == six[:2]).all()
    assert len({*six, *uniforms(sampling, "verify", 4, rows=6), *uniforms(sampling, "draft", 3, rows=6)}) == 18
    assert (six * 2**48 == np.floor(six * 2**48)).all()
    first, second = (sampling.of_answer([1, 2], noise=noise) for noise in (1, 2))
    assert len({sampling.seed, first.seed, second.seed, sampling.of_answer([12], noise=1).seed}) == 4
    assert first == sampling.of_answer([1, 2], noise=1)


@pytest.mark.parametrize(
    "bad",
    [
        *({"temperature": value} for value in (0.0, -1.0, math.nan, math.inf)),
        *({"top_p": value} for value in (0.0, 1.1, math.nan)),
        *({"top_k": value} for value in (-1, 1.5)),
        *({"min_p": value} for value in (-0.1, 1.1)),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(bad):
    with pytest.raises(ConfigError, match=rf"^sampling\.{next(iter(bad))}: [^\n]+$"):
        Sampling(**{"temperature": 1.0, **bad})


def test_no_block_and_temperature_zero_are_greedy():
    assert sampling_of(None) is sampling_of({}) is sampling_of({"temperature": 0}) is None
    assert sampling_of({"temperature": 0.5, "seed": 3}) == Sampling(0.5, seed=3)
