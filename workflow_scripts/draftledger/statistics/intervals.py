"""Intervals for the mean of a [seeds, prompts] matrix in which both are random and crossed."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftledger.errors import DraftledgerError
from draftledger.statistics.resampling import weights

Matrix = NDArray[np.float64]
SEEDS_AND_PROMPTS = "seeds and prompts"
THESE_ADAPTERS = "prompts, these adapters"
PROMPTS = "prompts"
NONE = "none"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval; low, high, df and standard_error are None where one cannot be had.

    `population` names what the interval generalises to; df is None for bootstrap intervals.
    """

    estimate: float
    low: float | None
    high: float | None
    confidence: float
    population: str
    df: float | None = None
    standard_error: float | None = None

    def exponentiated(self) -> "Interval":
        """The same interval on the ratio scale, for an interval of log ratios."""
        low, high = (None if end is None else float(np.exp(end)) for end in (self.low, self.high))
        return replace(self, estimate=float(np.exp(self.estimate)), low=low, high=high)

    def clipped(self, *, top: float = float("inf")) -> "Interval":
        """The same interval without its impossible part: below 0, or above `top`."""
        low, high = (None if end is None else min(max(end, 0.0), top) for end in (self.low, self.high))
        return replace(self, low=low, high=high)


def crossed_moments(values: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Grand mean, its variance and Satterthwaite's df for values [..., S, P] with S, P ≥ 2.

    variance = (MS_seed + MS_prompt − MS_residual) / (S·P), floored at MS_prompt / (S·P), where df = P − 1
    (two-way random effects without replication; Satterthwaite 1946, doi 10.2307/3002019). The subtracted
    term can push df below that of every mean square; it is kept at min(S, P) − 1 or more.
    """
    seeds, prompts = values.shape[-2:]
    mean = values.mean(axis=(-2, -1))
    seed_effect = values.mean(axis=-1) - mean[..., None]
    prompt_effect = values.mean(axis=-2) - mean[..., None]
    rest = values - mean[..., None, None] - seed_effect[..., :, None] - prompt_effect[..., None, :]
    ms_seed = prompts * np.square(seed_effect).sum(-1) / (seeds - 1)
    ms_prompt = seeds * np.square(prompt_effect).sum(-1) / (prompts - 1)
    ms_rest = np.square(rest).sum((-2, -1)) / ((seeds - 1) * (prompts - 1))
    floored = ms_seed <= ms_rest
    total = np.where(floored, ms_prompt, ms_seed + ms_prompt - ms_rest)
    spread = ms_seed**2 / (seeds - 1) + ms_prompt**2 / (prompts - 1)
    spread += ms_rest**2 / ((seeds - 1) * (prompts - 1))
    satterthwaite = np.maximum(total**2 / np.where(spread == 0, 1, spread), min(seeds, prompts) - 1.0)
    df = np.where(floored, prompts - 1.0, satterthwaite)
    return mean, total / (seeds * prompts), df


def student_interval(values: Matrix, *, seeded: bool, confidence: float, minimum_seeds: int = 3) -> Interval:
    """Student's t interval for the grand mean of values [S, P].

    Fewer than `minimum_seeds` seeds are averaged and the interval covers prompts only; one prompt has no
    interval. Raises DraftledgerError for a missing cell.
    """
    matrix, population = _collapsed(values, seeded=seeded, minimum_seeds=minimum_seeds)
    prompts = matrix.shape[1]
    if prompts < 2:
        return Interval(float(matrix.mean()), None, None, confidence, NONE)
    if population == SEEDS_AND_PROMPTS:
        mean, variance, df = map(float, crossed_moments(matrix))
    else:
        mean, variance, df = float(matrix.mean()), float(matrix.var(ddof=1)) / prompts, prompts - 1.0
    error = variance**0.5
    reach = float(stats.t.ppf(0.5 + confidence / 2, df)) * error
    return Interval(mean, mean - reach, mean + reach, confidence, population, df, error)


def bootstrap_interval(
    numerator: Matrix,
    denominator: Matrix,
    *,
    seeded: bool,
    confidence: float,
    resamples: int,
    key: int,
    minimum_seeds: int = 3,
) -> Interval:
    """Percentile interval for Σnumerator / Σdenominator, both [S, P]; seeds and prompts resampled apart.

    There is no interval for one prompt, or where a resample can miss every counted cell.
    """
    top, population = _collapsed(numerator, seeded=seeded, minimum_seeds=minimum_seeds)
    bottom, _ = _collapsed(denominator, seeded=seeded, minimum_seeds=minimum_seeds)
    estimate = float(top.sum() / bottom.sum())
    sums = crossed_sums(np.stack([top, bottom]), resamples=resamples, key=key)
    if top.shape[1] < 2 or np.any(sums[1] == 0):
        return Interval(estimate, None, None, confidence, NONE)
    tail = (1 - confidence) / 2
    low, high = np.quantile(sums[0] / sums[1], [tail, 1 - tail])
    return Interval(estimate, float(low), float(high), confidence, population)


def crossed_sums(values: Matrix, *, resamples: int, key: int) -> Matrix:
    """Resampled sums of values [..., S, P] with seeds and prompts drawn independently: [..., resamples]."""
    seed_weights = weights(values.shape[-2], resamples, key=key, stream=0)
    prompt_weights = weights(values.shape[-1], resamples, key=key, stream=1)
    return ((seed_weights @ values) * prompt_weights).sum(-1)


def linearised(numerator: Matrix, denominator: Matrix) -> Matrix:
    """Cell values [S, P] whose mean is Σnumerator / Σdenominator and whose spread is the ratio's.

    First-order expansion of a ratio estimator (Cochran 1977, Sampling Techniques, chapter 6).
    """
    ratio = numerator.sum() / denominator.sum()
    return ratio + (numerator - ratio * denominator) / denominator.mean()


def _collapsed(values: Matrix, *, seeded: bool, minimum_seeds: int) -> tuple[Matrix, str]:
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise DraftledgerError(
            f"interval: needs every (seed, prompt) cell, got shape {values.shape} with "
            f"{int((~np.isfinite(values)).sum())} missing; run the missing decodes or timings"
        )
    if not seeded:
        return values.mean(axis=0, keepdims=True), PROMPTS
    if len(values) < max(minimum_seeds, 2):
        return values.mean(axis=0, keepdims=True), THESE_ADAPTERS
    return values, SEEDS_AND_PROMPTS
