"""What a target's state holds, and whether two states hold the same."""

import mlx.core as mx
import numpy as np

from draftledger.models.state import TargetState


def continuation(state: TargetState) -> np.ndarray:
    """The logits of a fixed block of three tokens after the state, which stays as it is."""
    logits = np.array(state.run_block(mx.array([5, 17, 3], dtype=mx.int32)))
    state.rollback()
    return logits


def close(ours: np.ndarray, theirs: np.ndarray, relative: float = 2e-5) -> bool:
    """Whether every element is within `relative` of the largest one."""
    return bool(abs(ours - theirs).max() <= relative * max(1.0, abs(theirs).max()))


def contents(state: TargetState) -> list[np.ndarray]:
    """What the caches hold, without spare rows."""
    return [np.array(array) for array in state.fork().arrays()]


def same_contents(ours: TargetState, theirs: TargetState, length: int, relative: float = 2e-5) -> bool:
    """A window may still hold rows that are older than it; the recent ones must be equal."""
    pairs = list(zip(contents(ours), contents(theirs), strict=True))
    recent = [(a, b) if a.shape == b.shape else (a[..., -length:, :], b[..., -length:, :]) for a, b in pairs]
    return len(pairs) > 0 and all(close(a, b, relative) for a, b in recent)
