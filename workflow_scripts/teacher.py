"""Cache the target's distributions over one run of windows."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write the shard's top-k safetensors and its bounds table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from draftledger.models.open import open_target

    target = open_target(job)
    from draftledger.provenance.tables import write_table
    from draftledger.teacher.shards import BOUNDS, check_tail, encode_windows, save_shard

    spec = job.spec
    name = f"{spec['split']}-{spec['shard']:04d}"
    table = pq.read_table(job.input(f"windows/{spec['split']}.parquet"))
    part = table.slice(spec["shard"] * spec["windows"], spec["windows"]).to_pylist()
    windows = [(row["window"], np.array(row["tokens"], dtype=np.int32)) for row in part]
    encoded = list(encode_windows(target.model, windows, k=spec["top_k"], dense=spec["dense"]))
    rows = [row for _, row in encoded]
    check_tail(rows, limit=spec["max_tail"])
    save_shard(job.out(f"{name}.safetensors"), [number for number, _ in windows], [top for top, _ in encoded])
    write_table(pa.Table.from_pylist(rows, schema=BOUNDS), job.out(f"{name}.bounds.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute))
