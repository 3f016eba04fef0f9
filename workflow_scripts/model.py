"""Bring the target to an mlx-lm folder: from pinned bytes, or for the tiny one by training it."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    if job.spec["kind"] == "tiny":
        _train_tiny(job)
        return
    from draftledger.models.load import materialise
    from draftledger.models.sources import fetch

    materialise(fetch(job.spec, job.partial), job.folder)


def _train_tiny(job: Job) -> None:
    import pyarrow.parquet as pq

    from draftledger.models.backend import prepare

    prepare(job.environment or {})
    from draftledger.models.tiny import write_tiny

    texts = pq.read_table(job.input("corpus/documents.parquet"), columns=["text"])["text"].to_pylist()
    loss = write_tiny(texts, job.folder, spec=job.spec)
    print(f"target: last training loss {loss:.3f} nats", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_job(compute))
