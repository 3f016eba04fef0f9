"""How often the intervals cover the truth, by simulation; the nested bootstrap stands here as a warning."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftledger.statistics.intervals import Matrix, crossed_moments
from draftledger.statistics.resampling import indices


def coverage(
    seeds: int,
    prompts: int,
    *,
    seed_sd: float,
    prompt_sd: float,
    residual_sd: float,
    replicates: int,
    key: int,
    confidence: float = 0.95,
) -> float:
    """Share of simulated studies whose crossed t interval holds the true mean.

    A study is a normal two-way random-effects matrix [seeds, prompts] with the given standard deviations.
    Three seeds cover least where they hold most of the variance of the mean and prompts are many.
    """
    sds = (seed_sd, prompt_sd, residual_sd)
    mean, variance, df = crossed_moments(simulate((replicates, seeds, prompts), sds, key=key))
    return float(np.mean(np.abs(mean) <= stats.t.ppf(0.5 + confidence / 2, df) * np.sqrt(variance)))


def nested_coverage(
    seeds: int,
    prompts: int,
    *,
    seed_sd: float,
    prompt_sd: float,
    residual_sd: float,
    replicates: int,
    key: int,
    resamples: int = 200,
) -> float:
    """The same for a 95 % bootstrap that draws prompts anew within each drawn seed, as if they differed."""
    sds = (seed_sd, prompt_sd, residual_sd)
    studies = simulate((replicates, seeds, prompts), sds, key=key)
    seed = indices(seeds, (resamples, seeds), key=key, stream=3)
    prompt = indices(prompts, (resamples, seeds * prompts), key=key, stream=4)
    means = studies[:, seed[:, :, None], prompt.reshape(resamples, seeds, prompts)].mean(axis=(2, 3))
    low, high = np.quantile(means, [0.025, 0.975], axis=1)
    return float(np.mean((low <= 0) & (high >= 0)))


def simulate(shape: tuple[int, int, int], sds: tuple[float, float, float], *, key: int) -> Matrix:
    """Normal matrices [replicates, S, P] with mean 0 and standard deviations (seed, prompt, residual)."""
    replicates, seeds, prompts = shape
    return (
        sds[0] * _normal((replicates, seeds, 1), key=key, stream=0)
        + sds[1] * _normal((replicates, 1, prompts), key=key, stream=1)
        + sds[2] * _normal((replicates, seeds, prompts), key=key, stream=2)
    )


def _normal(shape: tuple[int, ...], *, key: int, stream: int) -> NDArray[np.float64]:
    generator = np.random.Generator(np.random.Philox(key=np.array([key, stream], dtype=np.uint64)))
    return generator.standard_normal(shape)
