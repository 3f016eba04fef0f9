"""Crossed intervals against sums of squares by hand, closed forms and degenerate studies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from draftledger.errors import DraftledgerError
from draftledger.statistics.intervals import (
    bootstrap_interval,
    crossed_moments,
    crossed_sums,
    linearised,
    student_interval,
)
from draftledger.statistics.resampling import indices, weights

VALUES = st.floats(-3, 3).map(lambda value: round(value, 3))
MATRICES = st.tuples(st.integers(3, 5), st.integers(2, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=VALUES)
)


def reference(matrix: np.ndarray) -> tuple[float, float, float]:
    """Mean, variance and df by residual sums of squares of least-squares fits with dummy variables."""
    seeds, prompts = matrix.shape
    y = matrix.ravel()
    seed, prompt = (np.kron(np.eye(seeds), np.ones((prompts, 1))), np.kron(np.ones((seeds, 1)), np.eye(prompts)))

    def rss(*blocks: np.ndarray) -> float:
        design = np.column_stack(blocks)
        return float(np.sum((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2))

    both = rss(seed, prompt)
    rest_df = (seeds - 1) * (prompts - 1)
    squares = [(rss(prompt) - both) / (seeds - 1), (rss(seed) - both) / (prompts - 1), both / rest_df]
    variance = max(squares[0] + squares[1] - squares[2], squares[1]) / (seeds * prompts)
    if squares[0] <= squares[2]:
        return float(y.mean()), variance, prompts - 1
    parts = zip(squares, (seeds - 1, prompts - 1, rest_df), strict=True)
    df = (variance * seeds * prompts) ** 2 / sum(square**2 / df for square, df in parts)
    return float(y.mean()), variance, max(df, min(seeds, prompts) - 1)


@pytest.mark.parametrize("case", range(6))
def test_moments_agree_with_least_squares(case: int) -> None:
    generator = np.random.Generator(np.random.Philox(key=case))
    effects = generator.normal(size=(4, 1)) * (case % 3) + generator.normal(size=(1, 7))
    matrix = effects + generator.normal(size=(4, 7))
    assert [float(moment) for moment in crossed_moments(matrix)] == pytest.approx(reference(matrix), rel=1e-9)


def test_moments_broadcast_over_studies() -> None:
    studies = np.random.Generator(np.random.Philox(key=9)).normal(size=(5, 3, 4))
    together = np.array(crossed_moments(studies)).T
    assert together == pytest.approx(np.array([crossed_moments(study) for study in studies]))


@given(st.integers(0, 2**32), st.floats(-2, 2), st.floats(0.5, 4))
def test_the_interval_moves_and_scales_with_the_values(key: int, shift: float, scale: float) -> None:
    matrix = np.random.Generator(np.random.Philox(key=key)).normal(size=(3 + key % 3, 2 + key % 5))
    before = student_interval(matrix, seeded=True, confidence=0.95)
    after = student_interval(matrix * scale + shift, seeded=True, confidence=0.95)
    ends = [before.low * scale + shift, before.high * scale + shift]
    assert [after.low, after.high] == pytest.approx(ends, rel=1e-6, abs=1e-6)


@given(MATRICES)
def test_a_seeded_interval_is_never_tighter_in_variance_than_the_prompts(matrix: np.ndarray) -> None:
    prompts = matrix.shape[1]
    seeded = student_interval(matrix, seeded=True, confidence=0.95)
    assert seeded.standard_error**2 >= matrix.mean(axis=0).var(ddof=1) / prompts - 1e-9
    assert seeded.low <= seeded.estimate <= seeded.high
    assert seeded.population == "seeds and prompts"


def test_few_seeds_are_averaged_and_arms_without_seeds_speak_of_prompts() -> None:
    matrix = np.array([[1.0, 2.0, 4.0], [1.5, 2.0, 3.0]])
    low, high = stats.t.interval(0.95, 2, matrix.mean(axis=0).mean(), stats.sem(matrix.mean(axis=0)))
    few = student_interval(matrix, seeded=True, confidence=0.95)
    unseeded = student_interval(matrix, seeded=False, confidence=0.95)
    assert (few.low, few.high) == pytest.approx((low, high)) == (unseeded.low, unseeded.high)
    assert (few.population, unseeded.population) == ("prompts, these adapters", "prompts")


@given(MATRICES)
def test_df_lie_between_the_smaller_level_and_all_cells(matrix: np.ndarray) -> None:
    df = float(crossed_moments(matrix)[2])
    assert min(matrix.shape) - 1 <= df <= matrix.size - 1 + 1e-9


def test_degenerate_studies() -> None:
    one = student_interval(np.ones((3, 1)), seeded=True, confidence=0.95)
    assert (one.estimate, one.low, one.high, one.population) == (1.0, None, None, "none")
    flat = student_interval(np.full((3, 4), 0.3), seeded=True, confidence=0.95)
    assert (flat.low, flat.high, flat.standard_error) == pytest.approx((0.3, 0.3, 0.0))
    for broken in (np.array([[1.0, np.nan], [1.0, 2.0]]), np.empty((0, 2)), np.ones(3)):
        with pytest.raises(DraftledgerError, match="missing"):
            student_interval(broken, seeded=True, confidence=0.95)


@pytest.mark.parametrize("seeded", [True, False])
def test_no_difference_and_an_alternating_effect_are_not_significant_while_a_constant_one_is(seeded: bool) -> None:
    alternating = np.tile([10.0, -10.0], (4, 6))
    settings = {"seeded": seeded, "confidence": 0.95}
    for values, significant in ((np.zeros((4, 12)), False), (alternating, False), (alternating * 0 + 1, True)):
        claims = [
            student_interval(values, **settings),
            bootstrap_interval(values, np.ones_like(values), resamples=2000, key=1, **settings),
        ]
        assert [claim.low > 0 or claim.high < 0 for claim in claims] == [significant] * 2


def test_a_ratio_is_linearised_about_its_pooled_value() -> None:
    numerator, denominator = np.array([[1.0, 4.0], [2.0, 9.0]]), np.array([[2.0, 8.0], [3.0, 11.0]])
    cells = linearised(numerator, denominator)
    assert cells.mean() == pytest.approx(16 / 24)
    assert linearised(numerator, np.ones((2, 2))) == pytest.approx(numerator)
    whole = linearised(numerator.sum(0, keepdims=True), denominator.sum(0, keepdims=True))
    assert whole == pytest.approx(cells.mean(axis=0, keepdims=True))


def test_the_bootstrap_agrees_with_a_loop_and_with_t_where_both_are_right() -> None:
    generator = np.random.Generator(np.random.Philox(key=4))
    matrix = generator.normal(size=(20, 1)) + generator.normal(size=(1, 40)) + generator.normal(size=(20, 40))
    seeds, prompts = (indices(n, (50, n), key=8, stream=stream) for stream, n in enumerate(matrix.shape))
    loop = [matrix[np.ix_(s, p)].sum() for s, p in zip(seeds, prompts, strict=True)]
    assert crossed_sums(matrix, resamples=50, key=8) == pytest.approx(loop)
    ones = np.ones_like(matrix)
    boot = bootstrap_interval(matrix, ones, seeded=True, confidence=0.95, resamples=4000, key=8)
    student = student_interval(matrix, seeded=True, confidence=0.95)
    assert boot.estimate == pytest.approx(student.estimate)
    assert boot.high - boot.low == pytest.approx(student.high - student.low, rel=0.15)


def test_a_bootstrap_that_can_miss_every_counted_cell_has_no_interval() -> None:
    counted = np.array([[0.0, 0.0, 5.0]])
    claim = bootstrap_interval(counted / 5, counted, seeded=False, confidence=0.95, resamples=200, key=0)
    assert (claim.estimate, claim.low, claim.population) == (0.2, None, "none")


def test_indices_come_from_raw_integers_and_are_even() -> None:
    raw = np.random.Philox(key=np.array([5, 1], dtype=np.uint64)).random_raw(6)
    expected = [int(value) // 2**32 * 7 // 2**32 for value in raw]
    assert indices(7, (2, 3), key=5, stream=1).ravel().tolist() == expected
    drawn = weights(7, 4000, key=5, stream=0)
    assert (drawn.sum(axis=1) == 7).all()
    assert stats.chisquare(drawn.sum(axis=0)).pvalue > 0.001


def test_bits_of_the_first_indices_are_fixed() -> None:
    assert indices(1000, (1, 6), key=20260905, stream=0).tolist() == [[492, 348, 200, 329, 40, 235]]
