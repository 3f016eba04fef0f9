"""A target's state over committed tokens: run a block, then commit a prefix of it or roll it back, exactly."""

import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models.caches import ForwardCache, exact_cache, reason_against
from draftledger.models.taps import Tapped

PREFILL_CHUNK = 512


def why_not(model: nn.Module) -> str | None:
    """Return why this target's caches cannot be rolled back exactly, or null when they can."""
    return _reason(make_prompt_cache(model))


def _reason(caches: list[Any]) -> str | None:
    return next(filter(None, map(reason_against, caches)), None)


class TargetState:
    """The caches of one answer, which only ever hold committed tokens between rounds.

    A round is `run_block` (any number of times, each undone by `rollback`) and then `run_block` + `commit`.
    Attention caches forget by offset; recurrent ones form the states after the kept prefix from what their layers
    recorded or, where those record nothing, run its tokens again: `replays` counts such forwards.
    `taps` are the layers, from 0, whose outputs are kept for a drafter.

    A target that cannot be rolled back exactly (`why_not`) may only go forward, a block at a time; all else raises
    UnsupportedError. Raises ConfigError for a tap that is none of the target's layers.
    """

    def __init__(self, model: nn.Module, *, taps: tuple[int, ...] = ()) -> None:
        self.model, self.taps = model, taps
        caches = make_prompt_cache(model)
        why = _reason(caches)
        self._caches: list[Any] = [ForwardCache(cache, why) if why else exact_cache(cache) for cache in caches]
        self.length = 0
        self.replays = 0
        self._block: mx.array | None = None
        self._runner = model
        self._tapped = [Tapped(model, taps)] if taps else []
        self._rows: mx.array | None = None  # the open block's taps
        self._told: list[mx.array] = []  # those of committed tokens, not yet taken

    @property
    def caches(self) -> list[Any]:
        """Return the caches as the model's forward takes them."""
        return [cache.cache if isinstance(cache, ForwardCache) else cache for cache in self._caches]

    def prefill(self, ids: mx.array) -> mx.array:
        """Commit the prompt ids: [T] int32 and return the last token's logits: [V]; no other row meets the head.

        Raises ConfigError for a prompt that is empty, padded or longer than the target's context.
        """
        _check_ids(ids, "prompt")
        context = context_of(self.model)
        if context is not None and ids.size > context:
            raise ConfigError(f"prompt: {ids.size} tokens exceed the target's context of {context}; shorten it")
        for start in range(0, ids.size - 1, PREFILL_CHUNK):
            chunk = ids[start : min(start + PREFILL_CHUNK, ids.size - 1)]
            self._forward(chunk, self.model)
            self._tell(chunk.size)
            mx.eval(self.arrays(), self._told)
        logits = self._forward(ids[-1:], self.model)
        self._tell(1)
        self.length += ids.size
        return logits[-1]

    def run_block(self, ids: mx.array, *, model: nn.Module | None = None) -> mx.array:
        """Run ids: [W] int32 after the committed tokens and return logits: [W, V].

        `model` is a twin of the target that shares its caches, such as one with a gated adapter.
        Raises UnsupportedError while a block is open, ConfigError for ids that are empty or padded.
        """
        _check_ids(ids, "block")
        if self._block is not None:
            raise UnsupportedError("a block is open; commit it or roll it back before the next")
        self._block, self._runner = ids, self.model if model is None else model
        for cache in self._caches:
            cache.begin(ids.size)
        return self._forward(ids, self._runner)

    def commit(self, count: int) -> None:
        """Keep the block's first `count` tokens and forget the others."""
        ids = self._open_block()
        if not 0 <= count <= ids.size:
            raise UnsupportedError(f"commit: the open block has {ids.size} tokens, not {count}")
        if not all([cache.commit(count) for cache in self._caches]):
            self._replay(ids[:count])
        self.length += count
        self._tell(count)
        self._block = None

    def rollback(self) -> None:
        """Forget the block, as if it had never run."""
        self._open_block()
        for cache in self._caches:
            cache.rollback()
        self._block = self._rows = None

    def fork(self) -> "TargetState":
        """Return a state of its own over the same committed tokens; what it runs never reaches this one."""
        if self._block is not None:
            raise UnsupportedError("a block is open; commit it or roll it back before a fork")
        twin = copy.copy(self)
        twin._caches, twin._told = [cache.fork() for cache in self._caches], list(self._told)
        return twin

    def take_taps(self) -> mx.array | None:
        """Return the taps of the tokens committed since the last call: [n, taps, D], or null without any."""
        told, self._told = self._told, []
        return mx.concatenate(told) if told else None

    def arrays(self) -> list[mx.array]:
        """Return every array of the caches, to wait for."""
        return [array for cache in self._caches for array in cache.arrays()]

    def _forward(self, ids: mx.array, model: nn.Module) -> mx.array:
        if not self.taps:
            return model(ids[None], cache=self.caches)[0]
        tapped = next((twin for twin in self._tapped if twin.model is model), None)
        if tapped is None:
            self._tapped.append(tapped := Tapped(model, self.taps))
        logits, self._rows = tapped(ids[None], self.caches)
        return logits[0]

    def _tell(self, count: int) -> None:
        if self._rows is not None and count:
            self._told.append(self._rows[:count])
        self._rows = None

    def _replay(self, ids: mx.array) -> None:
        """Run the kept tokens again from where the block began, in every cache."""
        for cache in self._caches:
            cache.rollback()
        if ids.size:
            self._runner(ids[None], cache=self.caches)
            self.replays += 1

    def _open_block(self) -> mx.array:
        if self._block is None:
            raise UnsupportedError("no block is open; run_block comes before commit or rollback")
        return self._block


def context_of(model: nn.Module) -> int | None:
    """Return how many positions a model was made for, where its mlx-lm settings tell."""
    for module in (model, model.get("language_model")):
        length = getattr(getattr(module, "args", None), "max_position_embeddings", None)
        if isinstance(length, int):
            return length
    return None


def _check_ids(ids: mx.array, what: str) -> None:
    if ids.ndim != 1 or not ids.size:
        raise ConfigError(f"{what}: ids of shape {list(ids.shape)}; give one row of at least one token, unpadded")
