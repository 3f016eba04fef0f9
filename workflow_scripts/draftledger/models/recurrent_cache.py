"""The exact cache of a recurrent layer: its states before the block, and where known how to form those within it."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

StateAfter = Callable[[int], mx.array]


class RecurrentCache(ArraysCache):
    """States of a recurrent layer. While a block is open its module notes how each state after any prefix is formed.

    Without a note for each state, a commit of less than the whole block asks for its tokens to be run again.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._held: list[Any] = list(self.cache)
        self._notes: dict[int, StateAfter] | None = None
        self._width = 0

    def note(self, slot: int, after: StateAfter) -> None:
        """Keep how the state in `slot` after the block's first 1 to width - 1 tokens is formed, if a block is open."""
        if self._notes is not None:
            self._notes[slot] = after

    def begin(self, width: int) -> None:
        """Hold the arrays as they are; what the layer writes from now on are others."""
        self._held, self._notes, self._width = list(self.cache), {}, width

    def commit(self, count: int) -> bool:
        """Keep the block's first `count` tokens; return false when they were forgotten and must be run again."""
        notes, self._notes = self._notes or {}, None
        if count == self._width:
            return True
        if count and len(notes) == len(self.cache):
            self.cache = [notes[slot](count) for slot in range(len(self.cache))]
            return True
        self.cache = list(self._held)
        return count == 0

    def rollback(self) -> None:
        """Forget the block."""
        self.cache, self._notes = list(self._held), None

    def fork(self) -> "RecurrentCache":
        """Return a cache of its own over the same tokens."""
        twin = RecurrentCache(len(self.cache))
        twin.cache = list(self.cache)
        return twin

    def arrays(self) -> list[mx.array]:
        """Return the states."""
        return [state for state in self.cache if state is not None]
