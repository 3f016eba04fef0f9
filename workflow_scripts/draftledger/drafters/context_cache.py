"""Keys and values of the committed tokens in one drafter layer; a block's own are appended only for its pass."""

import mlx.core as mx

STEP = 256


class ContextCache:
    """Grows with committed tokens only, so nothing is ever taken back.

    `offset` counts all committed positions, the ones dropped before they were stored too; `rows` are those stored.
    With `limit` only the last so many can still be seen, and older rows go when room is made.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.offset = 0
        self.rows = 0
        self._end = 0
        self._keys = self._values = mx.zeros((1, 1, 0, 1))

    def fresh(self, count: int) -> int:
        """Return how many of `count` new context rows are worth projecting."""
        return count if self.limit is None else min(count, self.limit)

    def extend(self, keys: mx.array, values: mx.array, *, block: int, skipped: int = 0) -> tuple[mx.array, mx.array]:
        """Store all but the last `block` rows and return everything that the block may see, itself included.

        keys, values: [1, H, n + block, D]; returned [1, H, rows + block, D]. `skipped` positions came before the n
        new ones and are not stored.
        """
        new = keys.shape[2] - block
        kept = self._visible(self.rows + new) - new
        if self._end + new + block > self._keys.shape[2]:
            self._make_room(keys, values, max(0, kept))
        span = slice(self._end, self._end + new + block)
        self._keys[..., span, :], self._values[..., span, :] = keys, values
        self._end += new
        self.offset += skipped + new
        self.rows = self._visible(self.rows + new)
        seen = slice(self._end - self.rows, self._end + block)
        return self._keys[..., seen, :], self._values[..., seen, :]

    def _visible(self, rows: int) -> int:
        return rows if self.limit is None else min(rows, self.limit)

    def _make_room(self, keys: mx.array, values: mx.array, kept: int) -> None:
        size = -(-(kept + keys.shape[2]) // STEP) * STEP + STEP
        span = slice(self._end - kept, self._end)
        self._keys, self._values = _moved(self._keys, keys, span, size), _moved(self._values, values, span, size)
        self._end = kept


def _moved(array: mx.array, like: mx.array, span: slice, size: int) -> mx.array:
    room = mx.zeros((*like.shape[:2], size, like.shape[3]), dtype=like.dtype)
    if kept := span.stop - span.start:
        room[..., :kept, :] = array[..., span, :]
    return room
