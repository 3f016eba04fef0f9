"""The exact cache of a recurrent layer: its states before the block, and where known how to form those within it."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

Prefix = Callable[[int], list[mx.array]]


class RecurrentCache(ArraysCache):
    """States of a recurrent layer. Its module may leave in `record` how the states after any prefix are formed.

    Without a record, a commit of less than the whole block asks for its tokens to be run again.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.record: Prefix | None = None
        self.recording = False
        self._held: list[Any] = list(self.cache)
        self._width = 0

    def begin(self, width: int) -> None:
        """Hold the arrays as they are; what the layer writes from now on are others."""
        self._held, self.record, self.recording, self._width = list(self.cache), None, True, width

    def commit(self, count: int) -> bool:
        """Keep the block's first `count` tokens, from the record where there is one."""
        record, self.record, self.recording = self.record, None, False
        if count == self._width:
            return True
        self.cache = record(count) if record else list(self._held)
        return record is not None

    def rollback(self) -> None:
        """Forget the block."""
        self.cache, self.record, self.recording = list(self._held), None, False

    def fork(self) -> "RecurrentCache":
        """Return a cache of its own over the same tokens."""
        twin = RecurrentCache(len(self.cache))
        twin.cache = list(self.cache)
        return twin

    def arrays(self) -> list[mx.array]:
        """Return the states."""
        return [state for state in self.cache if state is not None]
