"""The exact form of each mlx-lm cache: one that can go back to any token of the block that is being verified."""

from collections.abc import Callable
from typing import Any, Protocol, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from draftledger.errors import UnsupportedError
from draftledger.models.offset_cache import OffsetCache
from draftledger.models.recurrent_cache import RecurrentCache
from draftledger.models.window_caches import ExactChunkedKVCache, SlidingKVCache


class ExactCache(Protocol):
    """One layer's cache: what mlx-lm's class of it offers to the model, and a way back. It holds committed tokens.

    A block is `begin`, one forward of the model, then `commit` or `rollback`.
    """

    def begin(self, width: int) -> None:
        """Begin a block of `width` tokens."""
        ...

    def commit(self, count: int) -> bool:
        """Keep the block's first `count` tokens; return false when they were forgotten and must be run again."""
        ...

    def rollback(self) -> None:
        """Forget the block."""
        ...

    def fork(self) -> "ExactCache":
        """Return a cache of its own over the same committed tokens."""
        ...

    def arrays(self) -> list[mx.array]:
        """Return the arrays that it holds."""
        ...


class ExactKVCache(OffsetCache, KVCache):
    """Keys and values of every token."""

    def fork(self) -> "ExactKVCache":
        """Return a cache of its own, without spare rows: it makes a buffer of its own before it writes."""
        twin = ExactKVCache()
        twin.offset = self.offset
        if self.keys is not None:
            twin.keys, twin.values = self.keys_and_values()
        return twin

    def arrays(self) -> list[mx.array]:
        """Return keys and values, spare rows included."""
        return _arrays((self.keys, self.values))


class ExactQuantizedKVCache(OffsetCache, QuantizedKVCache):
    """Quantised keys and values of every token."""

    def fork(self) -> "ExactQuantizedKVCache":
        """Return a cache of its own, without spare rows: it makes a buffer of its own before it writes."""
        twin = ExactQuantizedKVCache(self.group_size, self.bits)
        twin.offset = self.offset
        if self.keys is not None:
            twin.keys, twin.values = (
                tuple(part[..., : self.offset, :] for part in cast(Any, kind)) for kind in (self.keys, self.values)
            )
        return twin

    def arrays(self) -> list[mx.array]:
        """Return packed values, scales and biases, spare rows included."""
        return _arrays((self.keys, self.values))


class ExactCacheList(CacheList):
    """The caches of a layer that has several; they begin and forget together."""

    def begin(self, width: int) -> None:
        """Begin a block of `width` tokens."""
        for cache in self.caches:
            cache.begin(width)

    def commit(self, count: int) -> bool:
        """Keep the block's first `count` tokens; return false when they must be run again."""
        return all([cache.commit(count) for cache in self.caches])

    def rollback(self) -> None:
        """Forget the block."""
        for cache in self.caches:
            cache.rollback()

    def fork(self) -> "ExactCacheList":
        """Return caches of its own over the same committed tokens."""
        return ExactCacheList(*(cache.fork() for cache in self.caches))

    def arrays(self) -> list[mx.array]:
        """Return the arrays of all."""
        return [array for cache in self.caches for array in cache.arrays()]


class ForwardCache:
    """Stands for a cache that can only go forward: a block is kept whole, anything else is refused.

    `reason` says why.
    """

    def __init__(self, cache: Any, reason: str) -> None:
        self.cache, self.reason, self._width = cache, reason, 0

    def begin(self, width: int) -> None:
        """Begin a block of `width` tokens."""
        self._width = width

    def commit(self, count: int) -> bool:
        """Keep the block; raise UnsupportedError when that is not all of it."""
        if count < self._width:
            self.rollback()
        return True

    def rollback(self) -> None:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"{self.reason}; use arm `ar`")

    def fork(self) -> "ForwardCache":
        """Raise UnsupportedError."""
        raise UnsupportedError(f"{self.reason}; use arm `ar`")

    def arrays(self) -> list[mx.array]:
        """Return the arrays of the cache's state."""
        return _arrays(self.cache.state)


_EXACT: dict[type, Callable[[Any], Any]] = {
    KVCache: lambda cache: ExactKVCache(),
    QuantizedKVCache: lambda cache: ExactQuantizedKVCache(cache.group_size, cache.bits),
    RotatingKVCache: lambda cache: SlidingKVCache(cache.max_size, cache.keep),
    ChunkedKVCache: lambda cache: ExactChunkedKVCache(cache.chunk_size),
    ArraysCache: lambda cache: RecurrentCache(len(cache.cache)),
    CacheList: lambda cache: ExactCacheList(*(exact_cache(part) for part in cache.caches)),
}


def exact_caches(model: nn.Module) -> list[Any]:
    """Return the exact form of the caches that mlx-lm makes for a model, all empty.

    Raises UnsupportedError for a kind whose exact rollback is not known.
    """
    return [exact_cache(cache) for cache in make_prompt_cache(model)]


def exact_cache(cache: Any) -> Any:
    """Return the exact form of an empty mlx-lm cache; raises UnsupportedError as `exact_caches` does."""
    if why := reason_against(cache):
        raise UnsupportedError(f"{why}; use arm `ar`")
    return _EXACT[type(cache)](cache)


def reason_against(cache: Any) -> str | None:
    """Return why a kind of mlx-lm cache cannot be rolled back exactly, or null when it can."""
    if type(cache) is CacheList:
        return next(filter(None, map(reason_against, cache.caches)), None)
    known = type(cache) in _EXACT
    return None if known else f"{type(cache).__name__}: a target with this cache cannot be rolled back exactly"


def _arrays(tree: Any) -> list[mx.array]:
    return [array for _, array in tree_flatten(tree) if isinstance(array, mx.array)]
