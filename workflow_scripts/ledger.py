"""Write SHA256SUMS over every payload, manifest and recipe; its own sha256 is the root digest to publish."""

import hashlib
import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write the sums, checkable with `shasum -a 256 -c SHA256SUMS` in the results folder."""
    from draftledger.provenance.atomic import write_bytes
    from draftledger.provenance.ledger import sums

    text = sums(job.inputs)
    write_bytes(job.out("SHA256SUMS"), text.encode())
    print(f"root digest: {hashlib.sha256(text.encode()).hexdigest()}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_job(compute, nature="probe"))
