"""What training reads: token windows with the teacher's distributions at their positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from draftledger.provenance.job import Job
from draftledger.teacher.shards import load_shards
from draftledger.teacher.topk import TopK


@dataclass(frozen=True, slots=True)
class Windows:
    """Token windows [W, T] int32 and the teacher's top-k at each of their positions, null where it is heard live.

    first, valid: [W] int32. The tokens from `first` on are taught, those from `valid` on are padding; null: all are.
    """

    tokens: np.ndarray
    teacher: TopK | None
    first: np.ndarray | None = None
    valid: np.ndarray | None = None

    def taught(self, rows: Sequence[int], places: np.ndarray) -> np.ndarray:
        """Tell which tokens at places [n or 1, …] of windows [n] are taught: [n, …] float32, 1 or 0."""
        count, length = self.tokens.shape
        first = np.zeros(count, np.int32) if self.first is None else self.first
        valid = np.full(count, length, np.int32) if self.valid is None else self.valid
        first, valid = np.stack([first, valid])[:, list(rows)].reshape(2, -1, *[1] * (places.ndim - 1))
        return ((places >= first) & (places < valid)).astype(np.float32)


def load_windows(job: Job, split: str) -> Windows:
    """Load a split's windows and teacher shards from a job's inputs; raise CorruptError when they do not match."""
    table = pq.read_table(job.input(f"windows/{split}.parquet"))
    shards = [path for path in job.inputs.values() if path.suffix == ".safetensors" and path.name.startswith(split)]
    tokens = np.array(table["tokens"].to_pylist(), dtype=np.int32)
    first, valid = (table[name].to_numpy() for name in ("first", "valid"))
    return Windows(tokens, load_shards(shards, table["window"].to_pylist()) if shards else None, first, valid)
