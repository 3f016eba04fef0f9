"""Bring a published drafter into the results: pinned bytes, checked, as one file."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write adapter.safetensors: the source's tensors under their own names, its config.json in the metadata."""
    from draftledger.drafters.formats.publish import publish
    from draftledger.models.sources import fetch_adapter

    publish(fetch_adapter(job.spec["adapter"]), job.out("adapter.safetensors"), spec=job.spec)


if __name__ == "__main__":
    sys.exit(run_job(compute))
