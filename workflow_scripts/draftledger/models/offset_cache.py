"""The part that caches of keys and values share: their rows stay where they are, so forgetting moves an offset."""


class OffsetCache:
    """Begins a block at the offset, and forgets by moving the offset back; later rows are overwritten."""

    offset: int
    began = 0

    def begin(self, width: int) -> None:
        """Note where a block of `width` tokens begins."""
        self.began = self.offset

    def commit(self, count: int) -> bool:
        """Keep the block's first `count` tokens."""
        self.offset = self.began + count
        return True

    def rollback(self) -> None:
        """Forget the block."""
        self.offset = self.began
