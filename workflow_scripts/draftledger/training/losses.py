"""Losses between a student's rows and the teacher's top-k, their dense forms, and how slots are weighed.

LOSSES take student logits: [..., V] float32 and return one value a row: [...]. The teacher is kept ids: [..., k],
their log-probabilities log_p: [..., k], and tail mass: [...]; ids outside the top-k count as one bucket. With k = V
the results equal the dense ones.
"""

from collections.abc import Callable

import mlx.core as mx

TINY = 1e-9

Loss = Callable[[mx.array, mx.array, mx.array, mx.array], mx.array]


def _buckets(logits: mx.array, ids: mx.array, tail: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    log_q = mx.take_along_axis(logits, ids, axis=-1) - mx.logsumexp(logits, axis=-1, keepdims=True)
    rest = mx.maximum(1 - mx.exp(log_q).sum(axis=-1), TINY)
    return log_q, rest, mx.maximum(tail, TINY)


def total_variation(logits: mx.array, ids: mx.array, log_p: mx.array, tail: mx.array) -> mx.array:
    """Return ½ Σ |p − q| with one tail bucket, in [0, 1]: one minus the acceptance (a lower bound of the dense one)."""
    log_q, rest, tail = _buckets(logits, ids, tail)
    return (mx.abs(mx.exp(log_p) - mx.exp(log_q)).sum(axis=-1) + mx.abs(tail - rest)) / 2


def forward_kl(logits: mx.array, ids: mx.array, log_p: mx.array, tail: mx.array) -> mx.array:
    """Return Σ p log(p/q) with one tail bucket: a lower bound of the dense divergence (data processing)."""
    log_q, rest, tail = _buckets(logits, ids, tail)
    return (mx.exp(log_p) * (log_p - log_q)).sum(axis=-1) + tail * (mx.log(tail) - mx.log(rest))


def likelihood_kl(logits: mx.array, ids: mx.array, log_p: mx.array, tail: mx.array) -> mx.array:
    """Return w·KL + (1 − w)·TV with w = exp(−3·acceptance) held constant: starts as KL, ends as TV (2602.23881)."""
    tv = total_variation(logits, ids, log_p, tail)
    weight = mx.stop_gradient(mx.exp(-3 * (1 - tv)))
    return weight * forward_kl(logits, ids, log_p, tail) + (1 - weight) * tv


LOSSES: dict[str, Loss] = {"tv": total_variation, "kl": forward_kl, "lk": likelihood_kl}


def _dense_total_variation(logits: mx.array, teacher: mx.array) -> mx.array:
    return mx.abs(mx.softmax(teacher, axis=-1) - mx.softmax(logits, axis=-1)).sum(axis=-1) / 2


def _dense_forward_kl(logits: mx.array, teacher: mx.array) -> mx.array:
    log_p = teacher - mx.logsumexp(teacher, axis=-1, keepdims=True)
    log_q = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return (mx.exp(log_p) * (log_p - log_q)).sum(axis=-1)


def _dense_likelihood_kl(logits: mx.array, teacher: mx.array) -> mx.array:
    tv = _dense_total_variation(logits, teacher)
    weight = mx.stop_gradient(mx.exp(-3 * (1 - tv)))
    return weight * _dense_forward_kl(logits, teacher) + (1 - weight) * tv


# The same losses from the live teacher's full logits: [..., V] float32 beside the student's.
DENSE: dict[str, Callable[[mx.array, mx.array], mx.array]] = {
    "tv": _dense_total_variation,
    "kl": _dense_forward_kl,
    "lk": _dense_likelihood_kl,
}


def cross_entropy(logits: mx.array, labels: mx.array) -> mx.array:
    """Return −log q(label) of logits: [..., V] float32 and labels: [...] int32, one value a label."""
    chosen = mx.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return mx.logsumexp(logits, axis=-1) - chosen


def position_weights(count: int, gamma: float | None) -> mx.array:
    """Return the weights [count] of a block's slots: exp(−i/gamma) for slot i from 0 (2602.06036), or all one."""
    places = mx.arange(count, dtype=mx.float32)
    return mx.ones_like(places) if gamma is None else mx.exp(-places / gamma)


def pace_weights(chances: mx.array, taught: mx.array, *, alpha: float) -> mx.array:
    """Return D-PACE's weights [N, n] of a draft's chances [N, n] of its labels (2605.18810), held constant.

    Slot i counts as much as the expected accepted length that rests on it: the sum over j ≥ i of the product of
    s up to j, where s = (1 − alpha) · chance + alpha; slots that are not taught [N, n] count for nothing.
    """
    reach = mx.cumprod((1 - alpha) * mx.stop_gradient(chances) + alpha, axis=-1)
    return taught * mx.cumsum(taught * reach, axis=-1, reverse=True)
