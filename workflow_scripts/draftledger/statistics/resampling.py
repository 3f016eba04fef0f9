"""Bootstrap indices from raw Philox integers, so that no library's sampling method decides their bits."""

import numpy as np
from numpy.typing import NDArray


def indices(count: int, shape: tuple[int, int], *, key: int, stream: int) -> NDArray[np.int64]:
    """Draw indices below `count`, shape [resamples, draws], keyed by (key, stream).

    The fixed-point product of the high 32 bits with `count` is biased by at most count / 2**32.
    """
    raw = np.random.Philox(key=np.array([key, stream], dtype=np.uint64)).random_raw(shape[0] * shape[1])
    scaled = (raw >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)
    return scaled.astype(np.int64).reshape(shape)


def weights(count: int, resamples: int, *, key: int, stream: int) -> NDArray[np.float64]:
    """How often each of `count` units is drawn in each resample of `count` draws: [resamples, count]."""
    drawn = indices(count, (resamples, count), key=key, stream=stream)
    flat = drawn + count * np.arange(resamples)[:, None]
    return np.bincount(flat.ravel(), minlength=resamples * count).reshape(resamples, count).astype(np.float64)
