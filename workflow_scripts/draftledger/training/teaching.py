"""What the target says at a block's slots: kept in few bytes, or heard live over the whole vocabulary."""

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import numpy as np

from draftledger.arrays import rolled
from draftledger.errors import ConfigError
from draftledger.rng import generator, key_of
from draftledger.teacher.topk import TopK
from draftledger.training.losses import DENSE, LOSSES


class Rows(Protocol):
    """The target's distributions at n slots of N blocks."""

    @property
    def best(self) -> mx.array:
        """Return the target's own choice at each slot: [N, n] int32."""
        ...

    @property
    def peak(self) -> mx.array:
        """Return the largest logit by size."""
        ...

    def term(self, name: str, logits: mx.array) -> mx.array:
        """Return a loss of LOSSES of student logits [N, n, V] float32 at each slot: [N, n]."""
        ...

    def part(self, chosen: slice) -> "Rows":
        """Return those of some blocks."""
        ...

    def of_others(self, turn: int, renamed: mx.array) -> "Rows":
        """Give each block the rows of the one `turn` before it, with every id i called renamed[i]."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """The largest k: ids [N, n, k] int32 sorted by falling probability, log_p [N, n, k], tail mass [N, n]."""

    ids: mx.array
    log_p: mx.array
    tail: mx.array
    peak: mx.array

    @property
    def best(self) -> mx.array:
        """Return the target's own choice at each slot: [N, n] int32."""
        return self.ids[..., 0]

    def term(self, name: str, logits: mx.array) -> mx.array:
        """Return a loss of LOSSES of student logits [N, n, V] float32 at each slot: [N, n]."""
        return LOSSES[name](logits, self.ids, self.log_p, self.tail)

    def part(self, chosen: slice) -> "Kept":
        """Return those of some blocks."""
        return Kept(self.ids[chosen], self.log_p[chosen], self.tail[chosen], self.peak)

    def of_others(self, turn: int, renamed: mx.array) -> "Kept":
        """Give each block the rows of the one `turn` before it, with every id i called renamed[i]."""
        ids, log_p, tail = (rolled(array, turn) for array in (self.ids, self.log_p, self.tail))
        return Kept(renamed[ids], log_p, tail, self.peak)


@dataclass(frozen=True, slots=True)
class Live:
    """The whole distribution as the target's logits [N, n, V], of any dtype."""

    logits: mx.array

    @property
    def best(self) -> mx.array:
        """Return the target's own choice at each slot: [N, n] int32."""
        return mx.argmax(self.logits, axis=-1).astype(mx.int32)

    @property
    def peak(self) -> mx.array:
        """Return the largest logit by size."""
        return mx.abs(self.logits).max().astype(mx.float32)

    def term(self, name: str, logits: mx.array) -> mx.array:
        """Return a loss of LOSSES of student logits [N, n, V] float32 at each slot: [N, n]."""
        return DENSE[name](logits, self.logits.astype(mx.float32))

    def part(self, chosen: slice) -> "Live":
        """Return those of some blocks."""
        return Live(self.logits[chosen])

    def of_others(self, turn: int, renamed: mx.array) -> "Live":
        """Give each block the rows of the one `turn` before it, with every id i called renamed[i]."""
        return Live(rolled(self.logits, turn)[..., mx.argsort(renamed)])


def kept_rows(teacher: TopK | None, window: np.ndarray, place: np.ndarray) -> Kept:
    """Return the stored rows at window [N, n] and place [N, n]; raise ConfigError when none were stored."""
    if teacher is None:
        raise ConfigError("drafters: no teacher was stored for this run; this is a fault, report it")
    logits = teacher.logits[window, place]
    return Kept(
        ids=mx.array(teacher.ids[window, place].astype(np.int32)),
        log_p=mx.array(logits - teacher.lse[window, place][..., None]),
        tail=mx.array(teacher.tail[window, place]),
        peak=mx.array(np.abs(logits).max()),
    )


def shuffling(seed: int, step: int, *, blocks: int, vocabulary: int) -> tuple[int, mx.array]:
    """Return how far the teacher's rows move among a step's blocks, and the names [V] that its ids go by.

    Renamed, not even token frequencies carry over. Raises ConfigError for a single block.
    """
    if blocks < 2:
        raise ConfigError("drafters: the shuffled teacher needs two blocks a batch; raise batch or anchors")
    key = key_of(seed, "shuffle", step)
    names = generator(key, "rename", 0).permutation(vocabulary).astype(np.int32)
    return 1 + key % (blocks - 1), mx.array(names)
