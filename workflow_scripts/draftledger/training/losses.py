"""Losses between a student's rows and the teacher's top-k, and the dense references they agree with.

All take student logits: [N, V] float32 and return one value a row: [N]. The teacher is kept ids: [N, k], their
log-probabilities log_p: [N, k], and tail mass: [N]; ids outside the top-k count as one bucket. With k = V the
results equal the dense ones.
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


def dense_reference(name: str, logits: mx.array, teacher_logits: mx.array) -> mx.array:
    """Return the same loss from the live teacher's full logits: [N, V]; the reference of the cached form."""
    log_p = teacher_logits - mx.logsumexp(teacher_logits, axis=-1, keepdims=True)
    log_q = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    tv = mx.abs(mx.exp(log_p) - mx.exp(log_q)).sum(axis=-1) / 2
    kl = (mx.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    weight = mx.stop_gradient(mx.exp(-3 * (1 - tv)))
    return {"tv": tv, "kl": kl, "lk": weight * kl + (1 - weight) * tv}[name]
