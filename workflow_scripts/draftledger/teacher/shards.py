"""Teacher shards: one file per run of windows, with its bounds beside it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from draftledger.arrays import load_tensors, save_tensors
from draftledger.errors import ConfigError, CorruptError
from draftledger.teacher.topk import TopK, acceptance_bounds, encode, log_softmax

LOGITS_BUDGET = 2**24

BOUNDS = pa.schema(
    [
        ("window", pa.int32()),
        ("positions", pa.int32()),
        ("tail_mean", pa.float64()),
        ("tail_p95", pa.float64()),
        ("tail_max", pa.float64()),
        ("dense", pa.bool_()),
        ("renormalised_tv", pa.float64()),
        ("acceptance", pa.float64()),
        ("acceptance_low", pa.float64()),
        ("acceptance_high", pa.float64()),
    ]
)


def encode_windows(
    model: nn.Module, windows: Sequence[tuple[int, np.ndarray]], *, k: int, dense: int
) -> Iterator[tuple[TopK, dict[str, Any]]]:
    """Yield each (number, tokens: [T]) window's top-k and its bounds row; the first `dense` are checked densely."""
    bar = tqdm(total=len(windows), desc="teacher", unit="window", mininterval=10)
    for place, ((number, _), logits) in enumerate(zip(windows, _logits(model, windows), strict=True)):
        top = encode(logits, k)
        yield top, {"window": number, **_tail(top), **_dense(top, logits, place < dense)}
        bar.update()
    bar.close()


def _logits(model: nn.Module, windows: Sequence[tuple[int, np.ndarray]]) -> Iterator[np.ndarray]:
    """Yield the target's logits [T, V] float32 a window, as many windows a pass as the memory budget allows."""
    start, size = 0, 1
    while start < len(windows):
        tokens = np.stack([tokens for _, tokens in windows[start : start + size]])
        logits = np.array(model(mx.array(tokens, dtype=mx.int32)).astype(mx.float32))
        yield from logits
        start += size
        size = max(1, LOGITS_BUDGET // logits[0].size)


def _tail(top: TopK) -> dict[str, Any]:
    return {
        "positions": top.tail.size,
        "tail_mean": float(top.tail.mean()),
        "tail_p95": float(np.quantile(top.tail, 0.95)),
        "tail_max": float(top.tail.max()),
    }


def _dense(top: TopK, logits: np.ndarray, wanted: bool) -> dict[str, Any]:
    """Recompute densely: renormalising moves the teacher by τ exactly, and the acceptance lies in its bounds.

    The student of the check is the target one position earlier: a real distribution that is often wrong.
    """
    if not wanted:
        return {"dense": False} | dict.fromkeys(("renormalised_tv", "acceptance", "acceptance_low", "acceptance_high"))
    log_p, log_q = log_softmax(logits[1:]), log_softmax(logits[:-1])
    later = TopK(top.logits[1:], top.ids[1:], top.lse[1:], top.tail[1:])
    low, high = acceptance_bounds(later, log_q)
    exact = np.minimum(np.exp(log_p), np.exp(log_q)).sum(axis=-1)
    moved = np.abs(_renormalised(later, log_p.shape[-1]) - np.exp(log_p)).sum(axis=-1) / 2
    if (exact < low - 1e-4).any() or (exact > high + 1e-4).any() or np.abs(moved - later.tail).max() > 1e-4:
        raise CorruptError("teacher: a dense window is outside the bounds of its top-k; this is a fault, report it")
    return {
        "dense": True,
        "renormalised_tv": float(moved.mean()),
        "acceptance": float(exact.mean()),
        "acceptance_low": float(low.mean()),
        "acceptance_high": float(high.mean()),
    }


def _renormalised(top: TopK, vocabulary: int) -> np.ndarray:
    p = np.exp(top.log_p)
    full = np.zeros((*p.shape[:-1], vocabulary), dtype=np.float32)
    np.put_along_axis(full, top.ids.astype(np.int64), p / p.sum(axis=-1, keepdims=True), axis=-1)
    return full


def check_tail(rows: Sequence[dict[str, Any]], *, limit: float) -> None:
    """Raise ConfigError when the shard's mean tail mass exceeds the configured limit."""
    mean = float(np.average([row["tail_mean"] for row in rows], weights=[row["positions"] for row in rows]))
    if mean > limit:
        raise ConfigError(f"teacher: mean tail mass {mean:.4f} exceeds max_tail {limit}; raise top_k")


def save_shard(path: Path, numbers: Sequence[int], tops: Sequence[TopK]) -> None:
    """Write a shard: `window` [W] int32 and logits, ids, lse, tail stacked over windows."""
    arrays = {name: mx.array(np.stack([getattr(top, name) for top in tops])) for name in TopK.__slots__}
    save_tensors(path, {"window": mx.array(list(numbers), dtype=mx.int32), **arrays})


def load_shards(paths: Sequence[Path], numbers: Sequence[int]) -> TopK:
    """Read shards and return the windows' top-k in the order of `numbers`: fields [W, T, ...].

    Raises CorruptError when a window is missing or present twice.
    """
    shards = [load_tensors(path) for path in paths]
    order = np.concatenate([np.array(shard["window"]) for shard in shards])
    if sorted(order.tolist()) != sorted(numbers):
        raise CorruptError("teacher: the shards do not hold exactly the windows; delete results/teacher and run again")
    place = np.argsort(order)[np.searchsorted(np.sort(order), np.asarray(numbers))]
    return TopK(*(np.concatenate([np.array(shard[name]) for shard in shards])[place] for name in TopK.__slots__))
