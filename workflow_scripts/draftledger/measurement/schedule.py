"""The order in which one timing session runs the arms: balanced squares, rotated by session."""

from collections.abc import Sequence
from math import gcd

import numpy as np

from draftledger.errors import ConfigError


def latin_square(arms: Sequence[str], key: int) -> list[list[str]]:
    """Return n rows of n arms, each arm once in every row and at every position.

    For an even n each arm also follows each other arm exactly once (Williams 1949, doi 10.1071/CH9490149).
    `key` shuffles which arm plays which part. Raises ConfigError for no arms or a repeated arm.
    """
    if not arms or len(set(arms)) != len(arms):
        raise ConfigError(f"schedule: arms must be distinct and not empty, got {list(arms)}; fix the config")
    count = len(arms)
    parts = np.argsort(np.random.Philox(key=key).random_raw(count), kind="stable").tolist()
    zigzag = [(step + 1) // 2 if step % 2 else -step // 2 for step in range(count)]
    names = list(arms)
    return [[names[parts[(row + shift) % count]] for shift in zigzag] for row in range(count)]


def order(prompt_index: int, session: int, arms: Sequence[str], key: int) -> list[str]:
    """Return the arms in the order in which `session` runs them on its `prompt_index`-th prompt.

    Consecutive prompts take consecutive rows; consecutive sessions start about half a square apart,
    and the first n sessions start at different rows.
    """
    square = latin_square(arms, key)
    return square[(prompt_index + session * _stride(len(square))) % len(square)]


def _stride(count: int) -> int:
    """The smallest step of at least half the square that reaches every row."""
    return next(step for step in range((count + 1) // 2, count + 1) if gcd(step, count) == 1 or count == 1)
