"""Train one drafter's adapter for one seed and launch."""

import sys
from importlib import import_module

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write adapter.safetensors and history.parquet; checkpoints wait in the job's partial folder."""
    from draftledger.models.open import open_target

    target = open_target(job)
    import pyarrow as pa

    from draftledger.provenance.tables import write_table
    from draftledger.training.data import load_windows
    from draftledger.training.trainer import HISTORY, Schedule, train

    spec = job.spec["drafter"]
    windows = {split: load_windows(job, split) for split in ("train", "validation")}
    kind = import_module(f"draftledger.training.{spec['kind']}")
    objective = kind.build(target.model, windows=windows, spec=spec, seed=job.spec["seed"])
    schedule = Schedule(**{name: spec[name] for name in Schedule.__slots__ if name in spec})
    weights, history = train(objective, objective.initial(), schedule=schedule, partial=job.partial)
    objective.save(weights, job.out("adapter.safetensors"))
    write_table(pa.Table.from_pylist(history, schema=HISTORY), job.out("history.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute, nature="draw"))
