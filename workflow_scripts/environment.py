"""Write the environment class: what decides the bits of a computation on this machine."""

import sys

from draftledger.provenance.atomic import write_json
from draftledger.provenance.job import Facts, Job, run_job


def compute(job: Job) -> Facts:
    """Probe the back end, BLAS and threads once; every other job reads the answer."""
    from draftledger.models.backend import probe

    runtime = job.spec["runtime"]
    kind, facts = probe(threads=runtime["threads"], dtype=runtime["dtype"], backend=runtime["backend"])
    write_json(job.out("environment.json"), {**kind, "software": job.spec["software"]})
    print(f"environment: {kind['backend']}, {kind['threads']} threads, {facts['gflops']} GFLOP/s", file=sys.stderr)
    return facts


if __name__ == "__main__":
    sys.exit(run_job(compute, nature="probe"))
