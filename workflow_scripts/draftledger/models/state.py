"""A target's state over committed tokens: run a block, then commit a prefix of it or roll it back, exactly."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import ArraysCache, KVCache, make_prompt_cache

from draftledger.errors import UnsupportedError

PREFILL_CHUNK = 512


class TargetState:
    """The caches of one answer, which only ever hold committed tokens between rounds.

    A round is `run_block` (any number of times, each undone by `rollback`) and then `run_block` + `commit`.
    Attention caches forget by offset; recurrent ones restore the arrays held since the block began and run the
    committed tokens again. `replays` counts those extra forwards.

    Raises UnsupportedError for a cache kind whose exact rollback is not known.
    """

    def __init__(self, model: nn.Module, *, taps: tuple[int, ...] = ()) -> None:
        self.model, self.taps = model, taps
        self.caches: list[Any] = make_prompt_cache(model)
        self.length = 0
        self.replays = 0
        self._saved: list[Any] | None = None
        self._block: mx.array | None = None
        for cache in self.caches:
            if type(cache) not in (KVCache, ArraysCache):
                raise UnsupportedError(
                    f"{type(cache).__name__}: a target with this cache cannot be rolled back exactly; use arm `ar`"
                )

    def prefill(self, ids: mx.array) -> mx.array:
        """Commit the prompt ids: [T] int32 and return the last token's logits: [V]; no other row meets the head."""
        for start in range(0, ids.size - 1, PREFILL_CHUNK):
            self.model(ids[None, start : min(start + PREFILL_CHUNK, ids.size - 1)], cache=self.caches)
            mx.eval([cache.state for cache in self.caches])
        self.length = ids.size
        return self.model(ids[None, -1:], cache=self.caches)[0, -1]

    def run_block(self, ids: mx.array, *, model: nn.Module | None = None) -> mx.array:
        """Run ids: [W] int32 after the committed tokens and return logits: [W, V].

        `model` is a twin of the target that shares its caches, such as one with a gated adapter.
        """
        self._saved = [_save(cache) for cache in self.caches]
        self._block = ids
        return (model or self.model)(ids[None], cache=self.caches)[0]

    def commit(self, count: int) -> None:
        """Keep the block's first `count` tokens and forget the others."""
        ids, saved = self._open_block()
        self.length += count
        if count < ids.size:
            if all(isinstance(cache, KVCache) for cache in self.caches):
                self._restore(saved, extra=count)
            else:
                self._restore(saved)
                self.model(ids[None, :count], cache=self.caches)
                self.replays += 1
        self._saved = self._block = None

    def rollback(self) -> None:
        """Forget the block, as if it had never run."""
        _, saved = self._open_block()
        self._restore(saved)
        self._saved = self._block = None

    def fork(self) -> "TargetState":
        """Return a state of its own over the same committed tokens; what it runs never reaches this one."""
        twin = TargetState(self.model)
        twin.length = self.length
        for copy, cache in zip(twin.caches, self.caches, strict=True):
            if isinstance(cache, KVCache):
                copy.keys, copy.values = cache.keys_and_values()
                copy.offset = cache.offset
            else:
                copy.cache = list(cache.cache)
        return twin

    def arrays(self) -> list[mx.array]:
        """Return every array of the caches, to wait for."""
        return [array for cache in self.caches for array in _arrays(cache) if array is not None]

    def _open_block(self) -> tuple[mx.array, list[Any]]:
        if self._block is None or self._saved is None:
            raise UnsupportedError("no block is open; run_block comes before commit or rollback")
        return self._block, self._saved

    def _restore(self, saved: list[Any], extra: int = 0) -> None:
        for cache, held in zip(self.caches, saved, strict=True):
            if isinstance(cache, KVCache):
                cache.offset = held + extra
            else:
                cache.cache = list(held)


def _save(cache: Any) -> Any:
    return cache.offset if isinstance(cache, KVCache) else tuple(cache.cache)


def _arrays(cache: Any) -> tuple[mx.array | None, ...]:
    return (cache.keys, cache.values) if isinstance(cache, KVCache) else tuple(cache.cache)
