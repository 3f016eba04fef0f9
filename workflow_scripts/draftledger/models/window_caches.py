"""Exact caches of layers that see a window or a chunk: rows in the order of their positions, so nothing wraps."""

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache

from draftledger.models.offset_cache import OffsetCache

Pair = tuple[mx.array, mx.array]


class Rows(OffsetCache):
    """Keys and values [B, H, rows, D] of the positions from `start` on; old rows go only when the buffer is full.

    A new buffer has `step` rows to spare, so it is copied once in so many tokens.
    """

    keys: mx.array | None
    values: mx.array | None
    step = 256
    start = 0

    def append(self, keys: mx.array, values: mx.array, *, oldest: int) -> None:
        """Write the rows of the next positions; those of positions before `oldest` may go."""
        first, end = self.offset - self.start, self.offset - self.start + keys.shape[2]
        if self.keys is None or self.values is None:
            self.keys, self.values = _roomy(self.step, keys), _roomy(self.step, values)
        elif end > self.keys.shape[2]:
            old_keys, old_values = self.rows(oldest, self.offset)
            self.keys, self.values = _roomy(self.step, old_keys, keys), _roomy(self.step, old_values, values)
            self.start = oldest
        else:
            self.keys[..., first:end, :] = keys
            self.values[..., first:end, :] = values
        self.offset += keys.shape[2]

    def rows(self, first: int, last: int) -> Pair:
        """Return the keys and values of the positions from `first` to before `last`."""
        if self.keys is None or self.values is None:
            raise IndexError("no rows are held yet")
        part = slice(first - self.start, last - self.start)
        return self.keys[..., part, :], self.values[..., part, :]

    def share(self, twin: "Rows") -> None:
        """Give another cache the rows held now, none to spare: it makes a buffer of its own before it writes."""
        twin.offset, twin.start = self.offset, self.start
        if self.keys is not None:
            twin.keys, twin.values = self.rows(self.start, self.offset)

    def arrays(self) -> list[mx.array]:
        """Return keys and values, spare rows included."""
        return [] if self.keys is None or self.values is None else [self.keys, self.values]


def _roomy(spare: int, *parts: mx.array) -> mx.array:
    batch, heads, _, size = parts[-1].shape
    return mx.concatenate([*parts, mx.zeros((batch, heads, spare, size), dtype=parts[-1].dtype)], axis=2)


class SlidingKVCache(Rows, RotatingKVCache):
    """The last `max_size` tokens, the first `keep` always among them (RotatingKVCache, without its ring).

    A block's rows stand behind those of the window of its first token, so committing any prefix loses none.
    """

    sinks: Pair | None = None
    first = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Pair:
        """Append keys and values [B, H, W, D]; return the rows that some of these W tokens sees."""
        oldest = self.offset - (self.max_size - self.keep) + 1
        self.first = oldest if oldest > self.keep else 0
        if self.keep and self.first and self.sinks is None:
            self.sinks = self.rows(0, self.keep)
        self.append(keys, values, oldest=self.first)
        return self.keys_and_values()

    def keys_and_values(self) -> Pair:
        """Return the rows that the last block's tokens see, for layers that share this cache."""
        recent = self.rows(self.first, self.offset)
        if not (self.keep and self.first):
            return recent
        keys, values = (mx.concatenate([*pair], axis=2) for pair in zip(self.sinks or (), recent, strict=True))
        return keys, values

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:
        """Return which of those rows each of `N` new tokens sees; null or "causal" where the rows say it all."""
        window, held = min(window_size or self.max_size, self.max_size), min(self.offset, self.max_size - 1)
        if held + N <= window and not (return_array and N > 1):
            return None if N == 1 else "causal"
        token, row = mx.arange(held, held + N)[:, None], mx.arange(held + N)[None]
        near = token - row < window - self.keep
        return (row <= token) & ((near | (row < self.keep)) if self.keep else near)

    def fork(self) -> "SlidingKVCache":
        """Return a cache of its own over the same tokens."""
        twin = SlidingKVCache(self.max_size, self.keep)
        self.share(twin)
        twin.sinks = self.sinks
        return twin


class ExactChunkedKVCache(Rows, ChunkedKVCache):
    """The tokens that the current chunk of attention may see; the model says when to forget older ones."""

    def maybe_trim_front(self) -> None:
        """Forget the tokens that lie a chunk or more behind; their rows go when the buffer is full."""
        self.start_position = max(self.start_position, self.offset - self.chunk_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Pair:
        """Append keys and values [B, H, W, D]; return the rows from `start_position` on."""
        self.append(keys, values, oldest=self.start_position)
        return self.keys_and_values()

    def keys_and_values(self) -> Pair:
        """Return the rows from `start_position` on."""
        return self.rows(self.start_position, self.offset)

    def fork(self) -> "ExactChunkedKVCache":
        """Return a cache of its own over the same tokens."""
        twin = ExactChunkedKVCache(self.chunk_size)
        self.share(twin)
        twin.start_position = self.start_position
        return twin
