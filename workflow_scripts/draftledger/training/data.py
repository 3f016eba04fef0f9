"""What training reads: token windows with the teacher's distributions at their positions."""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from draftledger.provenance.job import Job
from draftledger.teacher.shards import load_shards
from draftledger.teacher.topk import TopK


@dataclass(frozen=True, slots=True)
class Windows:
    """Token windows [W, T] int32 and the teacher's top-k at each of their positions, null where it is heard live."""

    tokens: np.ndarray
    teacher: TopK | None


def load_windows(job: Job, split: str) -> Windows:
    """Load a split's windows and teacher shards from a job's inputs; raise CorruptError when they do not match."""
    table = pq.read_table(job.input(f"windows/{split}.parquet"))
    shards = [path for path in job.inputs.values() if path.suffix == ".safetensors" and path.name.startswith(split)]
    tokens = np.array(table["tokens"].to_pylist(), dtype=np.int32)
    return Windows(tokens, load_shards(shards, table["window"].to_pylist()) if shards else None)
