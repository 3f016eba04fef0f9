"""The teacher's distribution in few bytes: the largest logits, their ids, the full log-sum-exp and the tail mass."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TopK:
    """Kept logits and ids [..., k], sorted by (−logit, id); log-sum-exp over the whole vocabulary and tail mass [...].

    Nothing is renormalised: exp(logit − lse) is the exact probability of each kept id.
    """

    logits: Floats
    ids: npt.NDArray[np.uint32]
    lse: Floats
    tail: Floats

    @property
    def log_p(self) -> Floats:
        """Return the kept ids' log-probabilities [..., k]."""
        return self.logits - self.lse[..., None]


def encode(logits: Floats, k: int) -> TopK:
    """Keep the `k` largest of logits: [..., V] float32; sums run in float64."""
    k = min(k, logits.shape[-1])
    ids = _largest(logits, k)
    kept = np.take_along_axis(logits, ids, axis=-1)
    order = np.argsort(-kept, axis=-1, kind="stable")
    ids, kept = np.take_along_axis(ids, order, axis=-1), np.take_along_axis(kept, order, axis=-1)
    top = logits.max(axis=-1, keepdims=True).astype(np.float64)
    lse = np.log(np.exp(logits - top).sum(axis=-1)) + top[..., 0]
    tail = np.clip(1.0 - np.exp(kept - lse[..., None]).sum(axis=-1), 0.0, 1.0)
    return TopK(kept, ids.astype(np.uint32), lse.astype(np.float32), tail.astype(np.float32))


def _largest(logits: Floats, k: int) -> npt.NDArray[np.int64]:
    """Return the ids of the `k` largest logits in rising order: [..., k]; of equal ones at the edge the lowest ids.

    A partition alone would choose among equal logits by the machine's vector width.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    edge = np.partition(flat, -k, axis=-1)[:, -k]
    rows, ids = np.nonzero(flat >= edge[:, None])
    level = flat[rows, ids] == edge[rows]
    above = np.bincount(rows, weights=~level, minlength=len(flat)).astype(np.int64)
    before = np.cumsum(level) - level  # equal ones seen so far, over all rows
    first = np.searchsorted(rows, np.arange(len(flat)))
    kept = ~level | (before - before[first][rows] < (k - above)[rows])
    return ids[kept].reshape(*logits.shape[:-1], k)


def acceptance_bounds(teacher: TopK, student_log_q: Floats) -> tuple[Floats, Floats]:
    """Bound the acceptance Σ min(p, q) of a student from the kept ids alone.

    student_log_q: [..., V] float32. The kept ids' share is exact; the tail adds at most min(τ, σ).
    """
    q = np.exp(np.take_along_axis(student_log_q, teacher.ids.astype(np.int64), axis=-1))
    low = np.minimum(np.exp(teacher.log_p), q).sum(axis=-1)
    return low, low + np.minimum(teacher.tail, np.clip(1.0 - q.sum(axis=-1), 0.0, 1.0))


def log_softmax(logits: Floats) -> Floats:
    """Return log-probabilities of logits: [..., V]."""
    top = logits.max(axis=-1, keepdims=True)
    return (
        logits - top - np.log(np.exp((logits - top).astype(np.float64)).sum(axis=-1, keepdims=True)).astype(np.float32)
    )
