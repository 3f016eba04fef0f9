"""Training blocks: noise rows at random positions of a window, run against the clean tokens before each anchor."""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import ArraysCache, KVCache, make_prompt_cache

from draftledger.errors import ConfigError
from draftledger.rng import generator


class BlockCache:
    """Clean keys and values [N, H, L, D] that N blocks read up to their own anchor; it stores nothing.

    anchors: [N] int32 positions of each block's last clean token; a block's rows follow it causally.
    """

    def __init__(self, keys: mx.array, values: mx.array, anchors: mx.array) -> None:
        self.keys, self.values, self.anchors = keys, values, anchors
        self.offset = anchors + 1

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the clean rows followed by the block's own."""
        return mx.concatenate([self.keys, keys], axis=2), mx.concatenate([self.values, values], axis=2)

    def make_mask(self, rows: int, *, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """Return [N, 1, rows, L + rows] bool: clean tokens up to the anchor, own rows causally."""
        if window_size is not None:
            raise ConfigError("blocks: a sliding-window target cannot be trained on yet; choose another target")
        clean = mx.arange(self.keys.shape[2])[None, None, None] <= self.anchors[:, None, None, None]
        own = mx.arange(rows)[:, None] >= mx.arange(rows)[None]
        shape = (self.anchors.size, 1, rows)
        return mx.concatenate(
            [mx.broadcast_to(clean, (*shape, clean.shape[-1])), mx.broadcast_to(own, (*shape, rows))], axis=-1
        )


def sample_anchors(seed: int, stream: str, step: int, *, count: int, length: int, k: int) -> list[int]:
    """Return `count` distinct sorted anchors in a window of `length` tokens that leave room for `k` teacher rows."""
    room = length - k
    if count > room:
        raise ConfigError(f"drafters: {count} anchors do not fit a window of {length} tokens with k {k}; lower them")
    return sorted(generator(seed, stream, step).permutation(room)[:count].tolist())


def epoch_rows(seed: int, step: int, *, size: int, windows: int) -> list[int]:
    """Return the `size` windows of a step: each of `windows` once an epoch, in the epoch's own keyed order."""
    places = [divmod(step * size + i, windows) for i in range(size)]
    orders = {epoch: generator(seed, "order", epoch).permutation(windows) for epoch, _ in places}
    return [int(orders[epoch][place]) for epoch, place in places]


def whole_batches(windows: int, most: int) -> list[list[int]]:
    """Return all windows in order, in equal batches of at most `most`, none left out."""
    size = max(n for n in range(1, most + 1) if windows % n == 0)
    return [list(range(start, start + size)) for start in range(0, windows, size)]


def clean_caches(model: nn.Module, tokens: mx.array, anchors: Sequence[int]) -> list[Any]:
    """Run tokens: [B, T] once without gradient; return per-layer caches for B·M blocks, forked at each anchor.

    Block b·M + m is window b at anchor m. Recurrent layers are stopped at every anchor, so their state is the
    one decoding would see; a target without them runs in a single pass.
    """
    caches = make_prompt_cache(model)
    recurrent = any(isinstance(cache, ArraysCache) for cache in caches)
    ends = [anchor + 1 for anchor in anchors] if recurrent else [anchors[-1] + 1]
    states: list[list[Any]] = []
    for start, end in zip([0, *ends], ends, strict=False):
        model(tokens[:, start:end], cache=caches)
        states.append([list(cache.cache) if isinstance(cache, ArraysCache) else None for cache in caches])
    forked = [_fork(cache, [s[layer] for s in states], tokens.shape[0], anchors) for layer, cache in enumerate(caches)]
    mx.eval([cache.cache if isinstance(cache, ArraysCache) else (cache.keys, cache.values) for cache in forked])
    return forked


def _fork(cache: Any, states: list[Any], batch: int, anchors: Sequence[int]) -> Any:
    count = len(anchors)
    if isinstance(cache, KVCache):
        keys, values = (mx.repeat(array, count, axis=0) for array in _keys_and_values(cache))
        return BlockCache(keys, values, mx.array(list(anchors) * batch, dtype=mx.int32))
    twin = ArraysCache(len(cache.cache))
    for slot in range(len(cache.cache)):
        stacked = mx.stack([state[slot] for state in states], axis=1)
        twin[slot] = stacked.reshape(batch * count, *stacked.shape[2:])
    return twin


def _keys_and_values(cache: KVCache) -> tuple[mx.array, mx.array]:
    return cast(tuple[mx.array, mx.array], cache.keys_and_values())


def fresh(caches: Sequence[Any]) -> list[Any]:
    """Return caches that a forward pass may advance without touching the forked ones."""
    return [_copied(cache) if isinstance(cache, ArraysCache) else cache for cache in caches]


def _copied(cache: ArraysCache) -> ArraysCache:
    twin = ArraysCache(len(cache.cache))
    twin.cache = list(cache.cache)
    return twin
