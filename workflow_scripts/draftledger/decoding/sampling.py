"""What a sampled token is drawn from, and the draw: filtered distributions in float32 and keyed uniforms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np

from draftledger.errors import ConfigError
from draftledger.rng import generator, key_of

# A float32 holds 24 of a uniform's bits; a draw uses as many again, or rare tokens could not be told apart.
HALF = 2**24
COLUMNS = 256


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is sampled; greedy decoding is no sampling at all (null), not temperature 0.

    The logits are divided by `temperature`; then `top_k` > 0 keeps the k likeliest tokens; `top_p` < 1 keeps of what
    is left, made to sum to 1 again, the smallest set whose mass reaches p; `min_p` > 0 keeps tokens with at least that
    share of the likeliest one's probability. Of equal probabilities the lower id comes first. `seed` keys the draws.

    Raises ConfigError for a value out of range.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        good = {
            "temperature": (0 < self.temperature < math.inf, "must be above 0; leave sampling out for greedy decoding"),
            "top_p": (0 < self.top_p <= 1, "must lie above 0 and not above 1; 1 keeps every token"),
            "top_k": (self.top_k >= 0 and self.top_k == int(self.top_k), "must be a whole number; 0 keeps every token"),
            "min_p": (0 <= self.min_p <= 1, "must lie between 0 and 1; 0 keeps every token"),
        }
        for name, (fine, told) in good.items():
            if not fine:
                raise ConfigError(f"sampling.{name}: {getattr(self, name)} {told}")

    @property
    def filters(self) -> bool:
        """Tell whether any token may be left out."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def of_answer(self, prompt: Sequence[int], *, noise: int) -> "Sampling":
        """Return the same sampling with the seed of one answer, so that no two prompts or streams share draws."""
        return replace(self, seed=key_of(self.seed, f"answer to {','.join(map(str, prompt))}", noise))


def sampling_of(settings: Mapping[str, Any] | None) -> Sampling | None:
    """Return the sampling of a config's block, or null (greedy) when there is none or its temperature is 0."""
    return Sampling(**settings) if settings and settings.get("temperature") != 0 else None


def distribution(logits: mx.array, sampling: Sampling) -> mx.array:
    """Return what a token is drawn from: logits [n, V] of any dtype to probabilities [n, V] float32 that sum to 1."""
    logits = logits.astype(mx.float32)
    p = _normalised(mx.exp((logits - logits.max(axis=-1, keepdims=True)) / sampling.temperature))
    if 0 < sampling.top_k < p.shape[-1]:
        last = -mx.partition(-p, sampling.top_k - 1, axis=-1)[:, sampling.top_k - 1, None]
        p = _down_to(p, last, mx.array(sampling.top_k))
    if sampling.top_p < 1:
        falling = -mx.sort(-p, axis=-1)
        count = mx.maximum((_mass_before(falling) < sampling.top_p).sum(axis=-1, keepdims=True), 1)
        p = _down_to(p, mx.take_along_axis(falling, count - 1, axis=-1), count)
    if sampling.min_p > 0:
        p = _normalised(mx.where(p >= sampling.min_p * p.max(axis=-1, keepdims=True), p, 0))
    return p


def _down_to(p: mx.array, last: mx.array, count: mx.array) -> mx.array:
    """Keep `count` tokens of each row of p [n, V], the smallest of which is `last` [n, 1]; of equal ones lower ids."""
    above, equal = p > last, p == last
    room = count - above.sum(axis=-1, keepdims=True)
    return _normalised(mx.where(above | (equal & (mx.cumsum(equal.astype(mx.int32), axis=-1) <= room)), p, 0))


def _normalised(p: mx.array) -> mx.array:
    return p / _columns(p).sum(axis=-1).sum(axis=-1, keepdims=True)


def _mass_before(p: mx.array) -> mx.array:
    columns = _columns(p)
    inner = mx.cumsum(columns, axis=-1, inclusive=False)
    outer = mx.cumsum(columns.sum(axis=-1), axis=-1, inclusive=False)
    return (outer[..., None] + inner).reshape(p.shape[0], -1)[:, : p.shape[1]]


def _columns(weights: mx.array) -> mx.array:
    """Cut rows [n, V] into [n, V / COLUMNS, COLUMNS], zeros last: one float32 sum over all of V loses four digits."""
    return mx.pad(weights, [(0, 0), (0, -weights.shape[1] % COLUMNS)]).reshape(weights.shape[0], -1, COLUMNS)


def uniforms(sampling: Sampling, stream: str, step: int, *, rows: int) -> np.ndarray:
    """Return the uniforms [rows] float64 in [0, 1) of one step: row i depends on (seed, stream, step, i) alone."""
    drawn = generator(sampling.seed, stream, step).random(rows)
    return np.floor(drawn * HALF**2) / HALF**2


def coarse(uniform: np.ndarray) -> mx.array:
    """Return the first 24 bits of uniforms, as float32 below 1."""
    return mx.array((np.floor(uniform * HALF) / HALF).astype(np.float32))


def draw(weights: mx.array, uniform: np.ndarray) -> mx.array:
    """Draw one id a row: the first whose cumulative weight exceeds uniform x total.

    weights: [n, V] float32, not below 0 and not all 0; uniform: [n] float64; ids: [n] int32. Sums run within columns
    of ids first, so that a rare token's share is not rounded to the last bit of the whole sum.
    """
    inner = mx.cumsum(_columns(weights), axis=-1)
    outer = mx.cumsum(inner[..., -1], axis=-1)
    high, whole = coarse(uniform)[:, None], outer[:, -1:]
    column = (outer <= high * whole).sum(axis=-1, keepdims=True)
    before = mx.where(column > 0, mx.take_along_axis(outer, mx.maximum(column - 1, 0), axis=-1), 0)
    low = mx.array((uniform - np.floor(uniform * HALF) / HALF).astype(np.float32))[:, None]
    inside = mx.take_along_axis(inner, column[..., None], axis=1)[:, 0]
    # Below the column's own total: the two sums round apart, and no token without weight may be drawn.
    rest = mx.minimum(high * whole - before + low * whole, inside[:, -1:] * (1 - 1 / HALF))
    return (column[:, 0] * COLUMNS + (inside <= rest).sum(axis=-1)).astype(mx.int32)
