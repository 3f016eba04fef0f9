"""Where a round's time goes: a clock that waits for each stage, and one that never does."""

import time
from collections import defaultdict
from typing import Protocol

import mlx.core as mx


class Clock(Protocol):
    """Hears when a stage's arrays have been asked for."""

    @property
    def waits(self) -> bool:
        """Tell whether every stage is waited for, so that no round may be queued before the last one is read."""
        ...

    def mark(self, stage: str, *arrays: mx.array) -> None:
        """Attribute the time since the last mark to `stage`."""
        ...


class NoClock:
    """Adds no synchronisation: for every figure of speed."""

    waits = False

    def mark(self, stage: str, *arrays: mx.array) -> None:
        """Do nothing."""


class StageClock:
    """Evaluates each stage's arrays before it reads the time; `seconds` by name of each stage that ran."""

    waits = True

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def mark(self, stage: str, *arrays: mx.array) -> None:
        """Wait for the arrays, then add the time since the last mark to `stage`."""
        mx.eval(*arrays)
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now
